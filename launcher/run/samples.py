"""Choose which of the numbers that a trainer prints become events."""

from __future__ import annotations

_FIRST_EVERY, _LONGEST_EVERY = 1.0, 30.0  # seconds between two samples
_BEFORE_FEWER = 200  # samples, before the time between two samples is doubled


class Samples:
    """Take one sample per second, and fewer in a long training: after a week, the file has about 3 MiB of samples."""

    def __init__(self) -> None:
        self._every = _FIRST_EVERY
        self._taken = 0
        self._next_at = 0.0

    def take_next(self) -> None:
        """Make the next numbers a sample, even if no sample is due."""
        self._next_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether the current numbers become a sample. If so, the caller takes them."""
        if now < self._next_at:
            return False
        self._taken += 1
        if self._taken % _BEFORE_FEWER == 0:
            self._every = min(2 * self._every, _LONGEST_EVERY)
        self._next_at = now + self._every
        return True
