"""The progress of a copy: the bytes that all workers have copied, and log messages with names, sizes and rates.

The counts are in memory that the workers share with the process that forked them, so reading the counts never blocks.
"""

from __future__ import annotations

import logging
import mmap
import struct
import time
from collections.abc import Callable, Iterable

from launcher.base.file_errors import printable

log = logging.getLogger(__name__)

SLOTS = 32  # one per worker
_COUNT = struct.Struct("@q")
_counts = mmap.mmap(-1, _COUNT.size * SLOTS)
_slot = 0

_FIRST, _INTERVAL = 2.0, 10.0  # seconds until the first message, and between further messages


def use_slot(slot: int) -> None:
    """Count the bytes of this worker in slot number `slot`. Each live worker must have its own slot."""
    global _slot
    _slot = slot * _COUNT.size


def count_bytes(count: int) -> None:
    """Add copied bytes to the count of this worker."""
    _COUNT.pack_into(_counts, _slot, _COUNT.unpack_from(_counts, _slot)[0] + count)


def copied_bytes() -> int:
    """Return the bytes copied by all workers of this process, including those of earlier pools."""
    return sum(count for (count,) in _COUNT.iter_unpack(_counts[:]))


def format_names(paths: Iterable[bytes], limit: int = 20) -> str:
    """Return the first `limit` names for a message, in natural order: 2 before 10."""
    ordered = sorted(paths, key=lambda name: (len(name), name) if name.isdigit() else (1 << 20, name))
    text = ", ".join(printable(name) for name in ordered[:limit])
    return text + (f" and {len(ordered) - limit} more" if len(ordered) > limit else "")


def format_size(count: float) -> str:
    """Return a number of bytes for a message: "3.1 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_files(count: int) -> str:
    """Return a number of files for a message: "10,000 files"."""
    return "1 file" if count == 1 else f"{count:,} files"


class Progress:
    """Log the progress of one task at a time: first after 2 s, then every 10 s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin("")

    def begin(self, task: str, total: int = 0) -> None:
        """Begin another task: to copy `total` bytes, or if `total` is 0, to scan for files."""
        self._task, self._total = task, total
        self._logged_at = self._changed_at = self._began_at = self._clock()
        self._logged = 0
        self._due = self._began_at + _FIRST

    def update(self, done: int) -> None:
        """Log the progress if it is time for a message. `done`: copied bytes, or found files if there is no total."""
        now = self._clock()
        if now < self._due:
            return
        if done != self._logged:
            self._changed_at = now
        log.info(f"{self._task}: {self._describe(done, now)}")
        self._logged_at, self._logged, self._due = now, done, now + _INTERVAL

    def seconds(self) -> float:
        """Return how many seconds the task has taken so far."""
        return self._clock() - self._began_at

    def _describe(self, done: int, now: float) -> str:
        total = self._total
        so_far = f"{format_size(done)} of {format_size(total)}" if total else f"{format_files(done)} found so far"
        if done == self._logged and now - self._changed_at >= _INTERVAL:
            return f"{so_far}, no progress for {now - self._changed_at:.0f} s: is a volume stalled?"
        if not total or not done:
            return so_far
        rate = (done - self._logged) / (now - self._logged_at)
        left = (total - done) / (done / (now - self._began_at))
        return f"{so_far}, {format_size(rate)}/s, about {left:.0f} s left"
