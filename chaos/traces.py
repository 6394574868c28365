"""Read the traces of trainers: their stamps, which have one clock, and the marks of generations in their logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MARK = re.compile(r"^==== \S+ \S+ generation (\d+), pod (\S+?)(?:, after pass (\d+))?(?:, because .*)? ====$")
_PASS = re.compile(r"\] +Pass=(\d+) Batch=\d+ samples=(\d+) ")
_GLOG = re.compile(r"^[IF]\d{4} \S+ +(\d+) \S+\] ")


@dataclass(frozen=True)
class Stamp:
    """One event of a trainer. `number` is a pass. For the word `begins`, it is the first pass to train."""

    at: int  # nanoseconds
    pod: str
    pid: int
    trainer: int
    word: str
    number: int


@dataclass
class Run:
    """One trainer process, from its first stamp to its last."""

    pod: str
    pid: int
    trainer: int
    first: int
    last: int
    stamps: list[Stamp] = field(default_factory=list)

    def numbers(self, word: str) -> list[int]:
        """Return the numbers of the stamps with this word, in order."""
        return [stamp.number for stamp in self.stamps if stamp.word == word]

    def __str__(self) -> str:
        return f"trainer {self.trainer} (process {self.pid} of {self.pod})"


@dataclass(frozen=True)
class Mark:
    """The line with which a generation begins in the log of a rank. `pids` are the processes that wrote after it."""

    generation: int
    pod: str
    after: int | None
    pids: frozenset[int]


def stamps(file: Path) -> list[Stamp]:
    """Return all stamps in the order of their times, or an empty list if the file does not exist yet."""
    lines = (line.split() for line in (file.read_text() if file.exists() else "").splitlines())
    found = [Stamp(int(a), pod, int(p), int(t), word, int(n)) for a, pod, p, t, word, n in lines]
    return sorted(found, key=lambda stamp: stamp.at)


def runs(file: Path) -> list[Run]:
    """Return all trainer processes, in the order of their first stamps."""
    found: dict[tuple[str, int], Run] = {}
    for stamp in stamps(file):
        new = Run(stamp.pod, stamp.pid, stamp.trainer, stamp.at, stamp.at)
        run = found.setdefault((stamp.pod, stamp.pid), new)
        run.last = stamp.at
        run.stamps.append(stamp)
    return list(found.values())


def passes(log: Path) -> Iterator[tuple[int, int, int]]:
    """Yield each pass that a trainer has finished: its generation, its number, and how many samples it has used."""
    generation = -1
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        if mark := _MARK.match(line):
            generation = int(mark[1])
        elif done := _PASS.search(line):
            yield generation, int(done[1]), int(done[2])


def marks(log: Path) -> list[Mark]:
    """Return the marks of one log, in order."""
    return list(_marks(log.read_text(errors="replace").splitlines()) if log.exists() else ())


def _marks(lines: list[str]) -> Iterator[Mark]:
    places = [(at, match) for at, line in enumerate(lines) if (match := _MARK.match(line))]
    ends = [*(at for at, _ in places[1:]), len(lines)]
    for (at, match), end in zip(places, ends, strict=False):  # a log may have no mark
        pids = frozenset(int(found[1]) for line in lines[at:end] if (found := _GLOG.match(line)))
        after = None if match[3] is None else int(match[3])
        yield Mark(int(match[1]), match[2], after, pids)
