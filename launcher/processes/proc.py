"""What /proc says about processes: who belongs to whom, who carries a launcher's tag, and what runs in one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_SHORT_FLAG = re.compile("-[A-Za-z]{1,3}")

TAG = "LAUNCHER_TAG"  # in the environment of everything that a launcher starts, so that nothing escapes its end


class ProcEntry(NamedTuple):
    """One process: its parent, its process group, its session, and whether it is only a zombie."""

    parent: int
    group: int
    session: int
    dead: bool


def tagged_environment(env: Mapping[str, str], tag: str) -> dict[str, str]:
    """The environment with the tag added to those of launchers further up, which look for theirs."""
    return {**env, TAG: f"{env[TAG]}:{tag}" if env.get(TAG) else tag}


def read_entry(pid: int) -> ProcEntry | None:
    """The entry of one process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()  # the name before it may hold anything
    except OSError:
        return None
    if len(fields) < 4:
        return None
    return ProcEntry(int(fields[1]), int(fields[2]), int(fields[3]), fields[0] in b"ZX")


def table() -> dict[int, ProcEntry]:
    """All processes that can be seen here."""
    return {pid: entry for pid in _pids() if (entry := read_entry(pid)) is not None}


def group_lives(group: int) -> bool:
    """Whether anybody in this process group is more than a zombie."""
    return any(entry.group == group and not entry.dead for entry in table().values())


def descendants(roots: set[int], processes: Mapping[int, ProcEntry]) -> set[int]:
    """The roots and everything below them."""
    found = set(roots)
    while more := {pid for pid, entry in processes.items() if entry.parent in found} - found:
        found |= more
    return found


def tree(pid: int) -> set[int]:
    """The process, everything in its session, and everything below those."""
    processes = table()
    session = {pid} | {other for other, entry in processes.items() if entry.session == pid}
    return descendants(session, processes)


def program(argv: Sequence[str]) -> str:
    """`paddle train`, `python -m pdb`, `sh -c`: what a command line runs. All that follows may hold secrets."""
    shown = list(argv[:1])
    for word in argv[1:]:
        short = _SHORT_FLAG.fullmatch(word)
        if short or not (word.startswith("-") or "=" in word):
            shown.append(word)
        if not short or word.endswith("c"):  # `-c` is followed by a program's text
            break
    return " ".join(" ".join(shown).split())


def tagged(tag: str) -> list[int]:
    """Live processes whose environment carries this tag, this process itself left out."""
    start, needle, me = f"\0{TAG}=".encode(), tag.encode(), os.getpid()
    found = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:
            continue
        value = environment.partition(start)[2].partition(b"\0")[0]
        if pid != me and needle in value.split(b":"):
            found.append(pid)
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
