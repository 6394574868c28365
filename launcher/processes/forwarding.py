"""Send a signal of the launcher on to processes that handle it. It would end all other processes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from launcher.processes.proc import ProcEntry, all_processes, blocks_signal, handles_signal


def forward(number: int, groups: Collection[int]) -> list[int]:
    """Send the signal to the processes of these groups that handle it. Return their pids.

    If a process and one that it has started both handle the signal, only the first gets it: a worker that was forked
    has the handlers of its parent, but they are not meant for the worker.
    """
    found: list[int] = []
    members = {pid: entry for pid, entry in all_processes().items() if entry.group in groups and not entry.is_dead}
    for pid in _topmost(members, number):
        try:
            os.kill(pid, number)
        except OSError:
            continue  # the process has ended, or belongs to another user
        found.append(pid)
    return found


def _topmost(members: Mapping[int, ProcEntry], number: int) -> Iterator[int]:
    """Yield each process that handles the signal, unless a process above it handles the signal."""
    level = [pid for pid, entry in members.items() if entry.parent not in members]
    while level:
        handling = {pid for pid in level if _handles(pid, number)}
        yield from handling
        level = [pid for pid, entry in members.items() if entry.parent in set(level) - handling]


def _handles(pid: int, number: int) -> bool:
    try:
        return handles_signal(pid, number) or blocks_signal(pid, number)
    except OSError:
        return False  # the process has ended
