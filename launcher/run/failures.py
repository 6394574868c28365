"""Failures of this member: reported to its gang, or held until there is one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from launcher.gang import Gang
from launcher.model import Cause

log = logging.getLogger(__name__)

_HOLD = 30.0  # seconds for which a failure before the join is held


class Failures:
    """Report each failure to the gang. Before the join, hold each failure, so that all members get it after the join.

    Hold later failures too: a restart repairs the death of a server, but not a copy that failed.

    expired: called with the first failure if there is still no gang after 30 s
    """

    def __init__(self, gang: Gang, expired: Callable[[Cause], None]) -> None:
        self.held: list[tuple[Cause, float]] = []  # cause and time (monotonic)
        self._gang = gang
        self._expired = expired
        self.joined = False  # from the complete roster until this member leaves

    @property
    def first(self) -> Cause | None:
        """The first failure that is held."""
        return self.held[0][0] if self.held else None

    def report(self, cause: Cause, died_at: float, attempt: int) -> None:
        log.info(cause.what)
        if self.joined:
            self._gang.report_failed(cause, died_at, attempt if cause.kind.restartable else None)
            return
        if not self.held:
            log.info(f"waiting up to {_HOLD:g} s for the gang, to report this failure")
            asyncio.get_running_loop().call_later(_HOLD, self._expire)
        self.held.append((cause, died_at))

    def join(self, rank: int | None, pod: str, attempt: int) -> None:
        """Report all failures that were held. This member has joined, so its rank and its pod's name are known."""
        self.joined = True
        for cause, died_at in self.held:
            number = attempt if cause.kind.is_child else None
            self._gang.report_failed(replace(cause, rank=rank, pod=pod), died_at, number)
        self.held.clear()

    def leave(self) -> None:
        """Hold failures again, since this member has left its gang."""
        self.joined = False

    def _expire(self) -> None:
        if not self.joined and self.first:
            self._expired(self.first)
