"""Determine which mounts of a container are volumes, from the text of /proc/self/mountinfo."""

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
_SYSTEM = ("/dev/", "/etc/", "/proc/", "/sys/")  # each container has bind mounts of single files there
_EMPTY_DIR = "/kubernetes.io~empty-dir/"


@dataclass(frozen=True)
class Mount:
    """One mount: its mount point, the type of its file system, and the folder of this file system that is mounted."""

    point: str
    type: str
    root: str


def parse(mountinfo: str) -> list[Mount]:
    """Return the mounts in the order in which they were mounted."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        mounts.append(Mount(_unescape(fields[4]), after.split()[0], _unescape(fields[3])))
    return mounts


def ephemeral_storage(mounts: Sequence[Mount], path: str, in_container: bool) -> str:
    """Describe the storage of the absolute `path` if its data is lost with the pod. Return "" if its data is kept.

    If the root file system is an overlay, this is a container even if `in_container` is false.
    """
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


def describe_volumes(mounts: Sequence[Mount]) -> list[str]:
    """Return the mounts that may be volumes, in the form "/mnt (nfs4)"."""
    return [
        f"{mount.point} ({mount.type})"
        for mount in mounts
        if mount.point != "/"
        and mount.type not in _NOT_VOLUMES
        and not mount.point.startswith(_SYSTEM)
        and _EMPTY_DIR not in mount.root
    ]


def _mount_of(mounts: Sequence[Mount], path: str) -> Mount:
    """Return the mount that contains the path. If one mount point has several mounts, the last mount counts."""
    longest = Mount("/", "", "/")
    for mount in mounts:
        if (path + "/").startswith(mount.point.rstrip("/") + "/") and len(mount.point) >= len(longest.point):
            longest = mount
    return longest


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
