"""One deadline for everything that waits for peers, and progress lines that neither flood nor fall silent."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from launcher.base.aio import bounded
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

_REPEAT = 30.0  # seconds after which an unchanged line is said again
_PAUSE = 1.0  # seconds between changes: thousands of pods come in a burst


class Deadline:
    """Counts from the first `begin()`."""

    def __init__(self, timeout: float, variable: str) -> None:
        self._timeout = timeout
        self._variable = variable
        self._deadline: float | None = None
        self._said = ""
        self._said_at = 0.0

    def begin(self) -> None:
        """Start the clock, the first time."""
        if self._deadline is None:
            self._said_at = monotonic()  # what is over within a moment is not worth a line
            self._deadline = self._said_at + self._timeout

    def left(self) -> float:
        """Seconds until the deadline, never negative."""
        return self._timeout if self._deadline is None else max(0.0, self._deadline - monotonic())

    def check_deadline(self, state: str, advice: str) -> None:
        """Past it the state becomes a Failure, with what to do."""
        if not self.left():
            raise Failure(Exit.TIMED_OUT, f"waited {self._timeout:g} s for peers ({self._variable}): {state}. {advice}")

    def check(self, state: str, advice: str) -> None:
        """Say the state if that is due, within the deadline."""
        self.check_deadline(state, advice)
        if monotonic() >= self._due(state):
            log.info(f"waiting for peers: {state}")
            self._said, self._said_at = state, monotonic()

    async def pause(self, state: str, seconds: float, changed: asyncio.Event) -> None:
        """Wait for a change, but not longer than this, the deadline, or until the state is due to be said."""
        bound = min(seconds, self.left(), max(0.0, self._due(state) - monotonic()))
        try:
            await bounded(changed.wait(), bound)
        except asyncio.TimeoutError:
            pass

    def _due(self, state: str) -> float:
        return self._said_at + (_REPEAT if state == self._said else _PAUSE)
