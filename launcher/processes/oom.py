"""Read from the container's control group whether the kernel killed a process because memory ran out.

Reads of the group's files never block, so they are allowed on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_CGROUPS = "/sys/fs/cgroup"  # in a container this is the container's own group
_VERSIONS = (  # the files that contain the count of kills and the limit, first of cgroup version 2, then of version 1
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
)
_NO_LIMIT = 1 << 60  # version 1 shows a very large number


def watch(cgroups: str = _CGROUPS) -> Callable[[], str]:
    """Return a function that describes an out-of-memory kill in this container.

    The function returns "" if there was no such kill since `watch` was called.
    """
    before = _kills(cgroups)

    def describe_kill() -> str:
        return _describe(cgroups) if _kills(cgroups) > before else ""

    return describe_kill


def _describe(cgroups: str) -> str:
    limit = _limit(cgroups)
    why = (
        f"the container's memory limit is {limit >> 20} MiB"
        if limit
        else "the container has no memory limit, so its node ran out of memory"
    )
    return f"out of memory: the kernel killed a process of this container; {why}"


def _kills(cgroups: str) -> int:
    """Return how many processes of the container the kernel has killed, or 0 if the kernel does not count kills."""
    for events, _ in _VERSIONS:
        for line in _read(cgroups, events).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _limit(cgroups: str) -> int | None:
    """Return the container's memory limit in bytes, or None."""
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
