"""Whether a path outlives the container, told from the text of /proc/self/mountinfo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_CONTAINER_ROOTS = {"overlay", "aufs", "fuse.fuse-overlayfs"}
_NOT_VOLUMES = {
    *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "fusectl"),
    *("hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "securityfs", "sysfs", "tmpfs", "tracefs"),
    *_CONTAINER_ROOTS,
}
_SYSTEM = ("/dev/", "/etc/", "/proc/", "/sys/")  # bind mounts of single files, in every container
_EMPTY_DIR = "/kubernetes.io~empty-dir/"


@dataclass(frozen=True)
class Mount:
    """One mount: where, of which type, and which folder of its file system it shows."""

    point: str
    type: str
    root: str


def parse(mountinfo: str) -> list[Mount]:
    """The mounts, in the order in which they were made."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        mounts.append(Mount(_unescape(fields[4]), after.split()[0], _unescape(fields[3])))
    return mounts


def goes_with_container(mounts: Sequence[Mount], path: str, in_container: bool) -> str:
    """Why what is written to an absolute path would not outlive the pod, or nothing. Root in layers: a container."""
    if not in_container and _mount_of(mounts, "/").type not in _CONTAINER_ROOTS:
        return ""
    mount = _mount_of(mounts, path)
    if mount.point == "/":
        return "the container's own file system"
    if mount.type == "tmpfs":
        return f"{mount.point}, which is memory (tmpfs)"
    if _EMPTY_DIR in mount.root:
        return f"{mount.point}, which is an emptyDir"
    return ""


def volumes(mounts: Sequence[Mount]) -> list[str]:
    """The mounts that may be volumes, for people: "/mnt (nfs4)"."""
    return [
        f"{mount.point} ({mount.type})"
        for mount in mounts
        if mount.point != "/"
        and mount.type not in _NOT_VOLUMES
        and not mount.point.startswith(_SYSTEM)
        and _EMPTY_DIR not in mount.root
    ]


def _mount_of(mounts: Sequence[Mount], path: str) -> Mount:
    """The longest mount point above the path; of several mounts on one point the last is seen."""
    found = Mount("/", "", "/")
    for mount in mounts:
        if (path + "/").startswith(mount.point.rstrip("/") + "/") and len(mount.point) >= len(found.point):
            found = mount
    return found


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
