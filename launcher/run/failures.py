"""Report failures of this member to its gang. Before the join, keep them until the gang is complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from launcher.gang import Gang
from launcher.model import Cause

log = logging.getLogger(__name__)

_HOLD = 30.0  # seconds to wait for the gang after a failure before the join
_BRIEF, _LONG = 120, 200  # characters


def brief(text: str) -> str:
    """Return the beginning of a text, which has the fact. The last line of the log has all of it, with the advice."""
    return text if len(text) <= _LONG else f"{text[:_BRIEF].rpartition(' ')[0] or text[:_BRIEF]} ..."


class Failures:
    """Report each failure to the gang. Keep failures from before the join, and report them after the join.

    Keep all of them, not only the first. For example, the first may be the death of a server, which a restart repairs.
    The second may be a copy that failed, which a restart does not repair.

    expired: called with the first failure if this member has not joined 30 s after this failure
    """

    def __init__(self, gang: Gang, expired: Callable[[Cause], None]) -> None:
        self.held: list[tuple[Cause, float]] = []  # cause and time (monotonic)
        self._gang = gang
        self._expired = expired
        self.joined = False  # True from the complete roster until this member leaves

    @property
    def first(self) -> Cause | None:
        """The first failure that waits for the join, or None."""
        return self.held[0][0] if self.held else None

    def report(self, cause: Cause, died_at: float, attempt: int) -> None:
        log.info(brief(cause.what))
        if self.joined:
            self._gang.report_failed(cause, died_at, attempt if cause.kind.restartable else None)
            return
        if not self.held:
            log.info(f"waiting up to {_HOLD:g} s for the gang, to report this failure")
            asyncio.get_running_loop().call_later(_HOLD, self._expire)
        self.held.append((cause, died_at))

    def join(self, rank: int | None, pod: str, attempt: int) -> None:
        """Report all failures from before the join. Add the rank and the pod, which the join has determined."""
        self.joined = True
        for cause, died_at in self.held:
            number = attempt if cause.kind.is_child else None
            self._gang.report_failed(replace(cause, rank=rank, pod=pod), died_at, number)
        self.held.clear()

    def leave(self) -> None:
        """Keep further failures for the next gang, since this member has left its gang."""
        self.joined = False

    def _expire(self) -> None:
        if not self.joined and self.first:
            self._expired(self.first)
