"""Limit how long the launcher looks for peers, and log what it waits for."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from launcher.base.aio import wait_within
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

_REPEAT = 30.0  # seconds after which an unchanged line is logged again
_PAUSE = 1.0  # seconds between two lines, at least: many pods of a large job change at the same time


class Deadline:
    """A deadline, `timeout` seconds after the first call of `start`.

    variable: the name of the variable that sets `timeout`, for messages
    """

    def __init__(self, timeout: float, variable: str) -> None:
        self._timeout = timeout
        self._variable = variable
        self._deadline: float | None = None
        self._said = ""
        self._said_at = 0.0

    def start(self) -> None:
        """Start the time at the first call. Later calls change nothing."""
        if self._deadline is None:
            self._said_at = monotonic()  # so a wait that is shorter than _PAUSE logs no line
            self._deadline = self._said_at + self._timeout

    def seconds_left(self) -> float:
        """Return the seconds until the deadline: 0 after the deadline, and the whole timeout before `start`."""
        return self._timeout if self._deadline is None else max(0.0, self._deadline - monotonic())

    def check(self, state: str, advice: str) -> None:
        """Raise Failure if the deadline has passed. The message has the state and the advice."""
        if not self.seconds_left():
            raise Failure(Exit.TIMED_OUT, f"waited {self._timeout:g} s for peers ({self._variable}): {state}. {advice}")

    def report(self, state: str, advice: str) -> None:
        """Check the deadline. Then log the state if a log line is due."""
        self.check(state, advice)
        if monotonic() >= self._line_due(state):
            log.info(f"waiting for peers: {state}")
            self._said, self._said_at = state, monotonic()

    async def pause(self, state: str, seconds: float, changed: asyncio.Event) -> None:
        """Wait for `changed`, for at most `seconds`. Return earlier at the deadline, or if a log line is due."""
        bound = min(seconds, self.seconds_left(), max(0.0, self._line_due(state) - monotonic()))
        try:
            await wait_within(changed.wait(), bound)
        except asyncio.TimeoutError:
            pass

    def _line_due(self, state: str) -> float:
        return self._said_at + (_REPEAT if state == self._said else _PAUSE)
