"""Whether the kernel killed a process of this container for want of memory: its control group counts that.

Files of the kernel's own, which always answer at once: they may be read on the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_CGROUPS = "/sys/fs/cgroup"  # in a container this is the container's own group
_VERSIONS = (  # who counts the kills, and who holds the limit: of version 2, then of version 1
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
)
_NO_LIMIT = 1 << 60  # version 1 shows the largest number there is


def watch(cgroups: str = _CGROUPS) -> Callable[[], str]:
    """From now on: gives what to say of a death, empty as long as the kernel has killed nobody here."""
    before = _kills(cgroups)

    def said() -> str:
        return _words(cgroups) if _kills(cgroups) > before else ""

    return said


def _words(cgroups: str) -> str:
    limit = _limit(cgroups)
    why = f"the container's limit is {limit >> 20} MiB" if limit else "the container has no limit: its node has no more"
    return f"out of memory, the kernel killed a process of this container: {why}"


def _kills(cgroups: str) -> int:
    """How many processes of the container the kernel has killed so far; 0 where nobody counts them."""
    for events, _ in _VERSIONS:
        for line in _read(cgroups, events).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _limit(cgroups: str) -> int | None:
    """The container's limit in bytes, where it has one."""
    for _, limit in _VERSIONS:
        text = _read(cgroups, limit).strip()
        if text.isdigit() and int(text) < _NO_LIMIT:
            return int(text)
    return None


def _read(cgroups: str, name: str) -> str:
    try:
        with open(os.path.join(cgroups, name), encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""
