"""What is said of a copy while it runs: names, sizes, rates."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from launcher.base.files import shown

log = logging.getLogger(__name__)

_FIRST, _EVERY = 2.0, 10.0  # seconds until the first word of progress, and between later ones


def names(paths: Iterable[bytes], most: int = 20) -> str:
    """Some names for a message, in the order that people expect: 2 before 10."""
    ordered = sorted(paths, key=lambda name: (len(name), name) if name.isdigit() else (1 << 20, name))
    text = ", ".join(shown(name) for name in ordered[:most])
    return text + (f" and {len(ordered) - most} more" if len(ordered) > most else "")


def size(count: float) -> str:
    """Bytes for people: 3.1 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def files(count: int) -> str:
    """A number of files for people: 10,000 files."""
    return "1 file" if count == 1 else f"{count:,} files"


class Progress:
    """Says how far something is: first after 2 s, then every 10 s, so short work says nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin("")

    def begin(self, what: str, total: int = 0) -> None:
        """From now on it is about this."""
        self._what, self._total = what, total
        self._last = self._moved = self._start = self._clock()
        self._before = 0
        self._due = self._start + _FIRST

    def at(self, done: int) -> None:
        """So much is done now: bytes of the total, or files found where there is no total yet."""
        now = self._clock()
        if now < self._due:
            return
        if done != self._before:
            self._moved = now
        log.info(f"{self._what}: {self._line(done, now)}")
        self._last, self._before, self._due = now, done, now + _EVERY

    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._start

    def _line(self, done: int, now: float) -> str:
        so_far = f"{size(done)} of {size(self._total)}" if self._total else f"{files(done)} found so far"
        if done == self._before and now - self._moved >= _EVERY:
            return f"{so_far}, nothing for {now - self._moved:.0f} s: is a volume stalled?"
        if not self._total or not done:
            return so_far
        rate = (done - self._before) / (now - self._last)
        left = (self._total - done) / (done / (now - self._start))
        return f"{so_far}, {size(rate)}/s, about {left:.0f} s left"
