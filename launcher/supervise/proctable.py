"""What /proc says about processes: who belongs to whom, and who carries a launcher's tag."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

TAG = "LAUNCHER_TAG"  # in the environment of everything that a launcher starts, so that nothing escapes its end


class Entry(NamedTuple):
    """One process: its parent, its process group, its session, and whether it is only a zombie."""

    parent: int
    group: int
    session: int
    dead: bool


def tagged_environment(env: Mapping[str, str], tag: str) -> dict[str, str]:
    """The environment with the tag added to those of launchers further up, which look for theirs."""
    return {**env, TAG: f"{env[TAG]}:{tag}" if env.get(TAG) else tag}


def read_entry(pid: int) -> Entry | None:
    """The entry of one process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()  # the name before it may hold anything
    except OSError:
        return None
    if len(fields) < 4:
        return None
    return Entry(int(fields[1]), int(fields[2]), int(fields[3]), fields[0] in b"ZX")


def table() -> dict[int, Entry]:
    """All processes that can be seen here."""
    return {pid: entry for pid in _pids() if (entry := read_entry(pid)) is not None}


def group_lives(group: int) -> bool:
    """Whether anybody in this process group is more than a zombie."""
    return any(entry.group == group and not entry.dead for entry in table().values())


def descendants(roots: set[int], processes: Mapping[int, Entry]) -> set[int]:
    """The roots and everything below them."""
    found = set(roots)
    while more := {pid for pid, entry in processes.items() if entry.parent in found} - found:
        found |= more
    return found


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
