"""Mount the volume of a round on all nodes of a cluster. The nodes are on this machine, each in its mount namespace."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chaos.disk import Disk
from chaos.pods_machines import Machines


def share(disk: Disk, machines: Machines) -> None:
    """Mount the same file system on all nodes, so that its faults affect all pods."""
    device = _said("findmnt", "--noheadings", "--output", "SOURCE", str(disk.volume))
    for node in machines.nodes:
        machines.inside(node, "mount", device, str(disk.volume))


def unshare(machines: Machines) -> None:
    """Unmount all loop devices on all nodes. A restarted node may have copied other mounts of this machine."""
    for node in machines.nodes:
        mounts = [line.split() for line in machines.inside(node, "cat", "/proc/mounts").splitlines()]
        for device, place, *_ in reversed(mounts):
            if device.startswith("/dev/loop"):
                machines.inside(node, "umount", place)


def left(image: Path) -> list[str]:
    """Return a message if a loop device still uses the image, because it is mounted somewhere."""
    used = _said("losetup", "--associated", str(image)) if image.exists() else ""
    return [f"the volume is still mounted somewhere: {used}"] if used else []


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
