"""The volume of a round on all nodes of a cluster that are this machine: each has a table of mounts of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chaos.disk import Disk
from chaos.pods_machines import Machines


def share(disk: Disk, machines: Machines) -> None:
    """One file system everywhere: what is done to it here is felt in all pods. A node that comes back has it, too."""
    device = _said("findmnt", "--noheadings", "--output", "SOURCE", str(disk.volume))
    for node in machines.nodes:
        machines.inside(node, "mount", device, str(disk.volume))


def unshare(machines: Machines) -> None:
    """No node has it mounted any more, nor what else a node that came back has found in our table."""
    for node in machines.nodes:
        mounts = [line.split() for line in machines.inside(node, "cat", "/proc/mounts").splitlines()]
        for device, place, *_ in reversed(mounts):
            if device.startswith("/dev/loop"):
                machines.inside(node, "umount", place)


def left(image: Path) -> list[str]:
    """The loop device that still has the file, as long as it is mounted anywhere."""
    used = _said("losetup", "--associated", str(image)) if image.exists() else ""
    return [f"the volume is still mounted somewhere: {used}"] if used else []


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
