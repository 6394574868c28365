"""The deadline for finding peers, and the progress lines while the launcher waits."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from launcher.base.aio import wait_within
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

_REPEAT = 30.0  # seconds until an unchanged line is repeated
_PAUSE = 1.0  # seconds between two lines: many pods of a large job change at the same time


class Deadline:
    """A deadline `timeout` seconds after the first `start`. `variable`: the variable that sets `timeout`."""

    def __init__(self, timeout: float, variable: str) -> None:
        self._timeout = timeout
        self._variable = variable
        self._deadline: float | None = None
        self._said = ""
        self._said_at = 0.0

    def start(self) -> None:
        """Start the timeout, unless it was started before."""
        if self._deadline is None:
            self._said_at = monotonic()  # no line for a wait shorter than _PAUSE
            self._deadline = self._said_at + self._timeout

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, never negative."""
        return self._timeout if self._deadline is None else max(0.0, self._deadline - monotonic())

    def check(self, state: str, advice: str) -> None:
        """Raise Failure with the state and the advice if the deadline has passed."""
        if not self.seconds_left():
            raise Failure(Exit.TIMED_OUT, f"waited {self._timeout:g} s for peers ({self._variable}): {state}. {advice}")

    def report(self, state: str, advice: str) -> None:
        """Check the deadline. Then log the state if it is time for the next log line."""
        self.check(state, advice)
        if monotonic() >= self._line_due(state):
            log.info(f"waiting for peers: {state}")
            self._said, self._said_at = state, monotonic()

    async def pause(self, state: str, seconds: float, changed: asyncio.Event) -> None:
        """Wait until `changed` is set, `seconds` or the deadline have passed, or it is time for the next log line."""
        bound = min(seconds, self.seconds_left(), max(0.0, self._line_due(state) - monotonic()))
        try:
            await wait_within(changed.wait(), bound)
        except asyncio.TimeoutError:
            pass

    def _line_due(self, state: str) -> float:
        return self._said_at + (_REPEAT if state == self._said else _PAUSE)
