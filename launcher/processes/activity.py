"""How much a child has worked: the processor time that its processes have used, and the bytes that they have read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from launcher.processes.proc import process_tree

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = 0.05  # the least share of one processor. A process that waits for its peers uses none
_READ = 64 * 1024  # bytes


@dataclass(frozen=True)
class Work:
    """What each process has done since its start: seconds of processor time, and bytes read."""

    by_pid: dict[int, tuple[float, int]]

    def continues(self, before: Work, seconds: float) -> bool:
        """Return whether a process has worked in the `seconds` since `before`. A new process has worked."""
        for pid, (used, read) in self.by_pid.items():
            used_before, read_before = before.by_pid.get(pid, (-seconds, 0))
            if used - used_before >= _BUSY * seconds or read - read_before >= _READ:
                return True
        return False


def work_of(pids: Iterable[int]) -> Work:
    """Return the work of these processes and of all their descendants. Skips processes that have ended."""
    found = {each: _work(each) for pid in pids for each in process_tree(pid)}
    return Work({pid: work for pid, work in found.items() if work is not None})


def _work(pid: int) -> tuple[float, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()  # the name before it may contain spaces
        used = (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return None
    return used, _bytes_read(pid)


def _bytes_read(pid: int) -> int:
    """Return how many bytes the process has read, or 0 if this user may not see it."""
    try:
        with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
            name, _, count = file.read(1024).partition(b"\n")[0].partition(b": ")
    except OSError:
        return 0
    return int(count) if name == b"rchar" and count.isdigit() else 0
