"""Read /proc: parents, groups and sessions of processes, the tags of launchers, and command lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from launcher.base import shortage

_SHORT_FLAG = re.compile("-[A-Za-z]{1,3}")

TAG = "LAUNCHER_TAG"  # set for all children. When the launcher ends, it kills each process that has its tag


class ProcEntry(NamedTuple):
    """One process. A zombie counts as dead."""

    parent: int
    group: int
    session: int
    is_dead: bool


def tagged_environment(env: Mapping[str, str], tag: str) -> dict[str, str]:
    """Return the environment with `tag` appended to the tags of the launchers that started this launcher."""
    return {**env, TAG: f"{env[TAG]}:{tag}" if env.get(TAG) else tag}


def read_entry(pid: int) -> ProcEntry | None:
    """Return the entry of one process, or None if there is no such process. Raises OSError without a descriptor."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()  # the name before it may contain spaces
    except OSError as error:
        if shortage.is_of_descriptors(error):
            raise
        return None
    if len(fields) < 4:
        return None
    return ProcEntry(int(fields[1]), int(fields[2]), int(fields[3]), fields[0] in b"ZX")


def all_processes() -> dict[int, ProcEntry]:
    """Return all visible processes by their pid."""
    return {pid: entry for pid in _pids() if (entry := read_entry(pid)) is not None}


def group_is_alive(group: int) -> bool:
    """Return whether this process group has a process that is not dead."""
    return any(entry.group == group and not entry.is_dead for entry in all_processes().values())


def descendants(roots: set[int], processes: Mapping[int, ProcEntry]) -> set[int]:
    """Return the roots and all their descendants."""
    found = set(roots)
    while more := {pid for pid, entry in processes.items() if entry.parent in found} - found:
        found |= more
    return found


def process_tree(pid: int) -> set[int]:
    """Return the process, all other processes of the session that this process leads, and all their descendants."""
    processes = all_processes()
    session = {pid} | {other for other, entry in processes.items() if entry.session == pid}
    return descendants(session, processes)


def handles_signal(pid: int, number: int) -> bool:
    """Return whether the process has a handler for a signal."""
    return _has_bit(pid, b"SigCgt:", number)


def blocks_signal(pid: int, number: int) -> bool:
    """Return whether the main thread of the process blocks a signal, perhaps to wait for it."""
    return _has_bit(pid, b"SigBlk:", number)


def _has_bit(pid: int, field: bytes, number: int) -> bool:
    with open(f"/proc/{pid}/status", "rb") as file:
        mask = next(int(line.split()[1], 16) for line in file if line.startswith(field))
    return bool(mask >> (number - 1) & 1)


def program(argv: Sequence[str]) -> str:
    """Return the program of a command line: `paddle train`, `python -m pdb`, `sh -c`.

    The later words of the command line are left out, since they may contain secrets.
    """
    shown = list(argv[:1])
    for word in argv[1:]:
        short = _SHORT_FLAG.fullmatch(word)
        if short or not (word.startswith("-") or "=" in word):
            shown.append(word)
        if not short or word.endswith("c"):  # the text of a program follows `-c`
            break
    return " ".join(" ".join(shown).split())


def find_tagged(tag: str) -> list[int]:
    """Return the live processes with this tag in their environment, except this process."""
    start, needle, me = f"\0{TAG}=".encode(), tag.encode(), os.getpid()
    found = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError as error:
            if shortage.is_of_descriptors(error):
                raise
            continue
        value = environment.partition(start)[2].partition(b"\0")[0]
        if pid != me and needle in value.split(b":"):
            found.append(pid)
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
