"""Detect on the hub that no trainer of the job prints anything, and collect evidence before the verdict."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from launcher.errors import Exit
from launcher.gang import messages
from launcher.gang.events import PROGRESS_REPORTS, GangSettings
from launcher.gang.protocol import Message
from launcher.model import Cause, CauseKind

_MAX_NAMED = 8


class StallDetector:
    """Watch one attempt at a time.

    broadcast: sends a message to all members
    on_stalled: called with the cause, once all members have collected evidence or the time limit for it has passed
    """

    def __init__(
        self, settings: GangSettings, broadcast: Callable[[Message], None], on_stalled: Callable[[Cause], None]
    ) -> None:
        self._settings = settings
        self._broadcast = broadcast
        self._on_stalled = on_stalled
        self._attempt: int | None = None  # the attempt that is watched
        self._printed_at = 0.0
        self._last: tuple[int, str] | None = None  # the last printed line, after the rank of its member
        self._quiet_for: float | None = None  # seconds without a line; set while evidence is collected
        self._evidence: dict[int, tuple[int, bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: int) -> None:
        """Start to watch an attempt. The caller must call this when all trainers of the attempt may start."""
        self.stop()
        if self._settings.stall:
            self._attempt, self._printed_at = attempt, time.monotonic()
            self._last, self._quiet_for, self._evidence = None, None, {}
            self._check()

    def stop(self) -> None:
        """Stop watching.

        The caller must call this when all members have finished training, or when the attempt ends in another way.
        """
        self._attempt = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_progress(self, rank: int, message: Message) -> None:
        age, line = messages.read_progress(message)
        printed_at = time.monotonic() - age
        if messages.read_attempt(message) == self._attempt and printed_at >= self._printed_at:
            self._printed_at, self._last = printed_at, (rank, line)

    def on_collected(self, rank: int, message: Message) -> None:
        if messages.read_attempt(message) != self._attempt or self._quiet_for is None:
            return
        self._evidence[rank] = messages.read_collected(message)
        if len(self._evidence) == self._settings.size:
            self._report()

    def current_message(self) -> Message | None:
        """Return the message about a stall that a reconnected member needs, or None."""
        if self._attempt is None or self._quiet_for is None:
            return None
        return messages.of_attempt("collect", self._attempt)

    def _check(self, *, again: bool = False) -> None:
        """Collect evidence if the attempt counts as stalled in two checks in a row.

        One check is not enough: members report lines late. After a stop of this process (SIGSTOP), it may not have read
        all reports.
        """
        left = self._printed_at + self._settings.stall - time.monotonic()
        if left > 0:
            self._later(left, self._check)
        elif not again:
            self._later(self._settings.stall / PROGRESS_REPORTS, lambda: self._check(again=True))
        else:
            self._collect()

    def _collect(self) -> None:
        assert self._attempt is not None
        self._quiet_for = time.monotonic() - self._printed_at
        self._later(self._settings.evidence_within, self._report)
        self._broadcast(messages.of_attempt("collect", self._attempt))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _report(self) -> None:
        what = (
            f"the job is stalled: no trainer has printed anything for {self._quiet_for:.0f} s (LAUNCHER_STALL_TIMEOUT="
            f"{self._settings.stall:g}); {self._describe_last_line()}; {self._describe_processes()}"
        )
        self.stop()
        self._on_stalled(Cause(CauseKind.STALLED, None, "", what, Exit.STALLED))

    def _describe_last_line(self) -> str:
        if self._last is None:
            return "no trainer has printed a line since training began"
        rank, line = self._last
        return f"the last line was of {self._settings.shape.name(rank)}: {line!r}"

    def _describe_processes(self) -> str:
        """Return how many processes each member has. The text names only a limited number of members."""
        shape, alike = self._settings.shape, defaultdict[str, list[int]](list)
        for rank in range(self._settings.size):
            alike[self._describe_evidence(rank)].append(rank)
        if len(alike) == 1:
            return f"each member {next(iter(alike))}"
        parts = [f"{_few(ranks, shape.names)} {words}" for words, ranks in alike.items()]
        return ", ".join(parts[:_MAX_NAMED])

    def _describe_evidence(self, rank: int) -> str:
        count, written = self._evidence.get(rank, (None, False))
        if count is None:
            return "has not reported its processes"
        problem = "" if written else " and could not write the evidence to a file"
        return f"has {count} process{'' if count == 1 else 'es'}{problem}"


def _few(ranks: list[int], names: Callable[[list[int]], str]) -> str:
    more = len(ranks) - _MAX_NAMED
    return names(ranks[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
