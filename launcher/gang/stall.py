"""Detect on the hub that no trainer of the job prints anything, and collect evidence before the verdict."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from launcher.errors import Exit
from launcher.gang import grouping, messages
from launcher.gang.events import PROGRESS_REPORTS, GangSettings
from launcher.gang.pauses import Pauses
from launcher.gang.protocol import Message
from launcher.gang.survey import Answers, Surveys
from launcher.model import Cause, CauseKind, Shape


class StallDetector:
    """Watch one attempt at a time.

    on_stalled: called with the cause, once all members have collected evidence or the time limit for it has passed
    is_cut: returns whether a member is cut off, so that its reports do not arrive. Meanwhile the clock stands still.
    """

    def __init__(
        self,
        settings: GangSettings,
        surveys: Surveys,
        shape: Callable[[], Shape],
        on_stalled: Callable[[Cause], None],
        is_cut: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._surveys = surveys
        self._shape = shape
        self._on_stalled = on_stalled
        self._is_cut = is_cut
        self._attempt: int | None = None  # the attempt that is watched
        self._printed_at = 0.0
        self._last: tuple[int, str] | None = None  # the last printed line, after the rank of its member
        self._pauses = Pauses(settings)
        self._survey: int | None = None  # set while evidence is collected
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: int) -> None:
        """Start to watch an attempt. The caller must call this when all trainers of the attempt may start."""
        self.stop()
        if self._settings.stall:
            self._attempt, self._printed_at, self._last = attempt, time.monotonic(), None
            self._pauses.begin()
            self._check()

    def stop(self) -> None:
        """Stop watching.

        The caller must call this when all members have finished training, or when the attempt ends in another way.
        """
        self._attempt = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._survey is not None:
            self._surveys.drop(self._survey)
            self._survey = None

    def on_progress(self, rank: int, message: Message) -> None:
        age, report = messages.read_progress(message)
        if messages.read_attempt(message) != self._attempt:
            return
        printed_at = time.monotonic() - age
        self._pauses.add(rank, printed_at, report)
        # A later report of the same member has its latest line, even if a delay of the first one makes it look older.
        if printed_at >= self._printed_at or (self._last is not None and self._last[0] == rank):
            self._printed_at, self._last = max(printed_at, self._printed_at), (rank, report.line)

    def on_trained(self) -> None:
        """Record that all trainers of a member have ended."""
        self._pauses.trained()

    def _check(self, *, again: bool = False) -> None:
        """Collect evidence if the attempt counts as stalled in two checks in a row.

        One check is not enough: members report lines late. After a stop of this process (SIGSTOP), it may not have read
        all reports.
        """
        timeout = self._timeout()
        if self._is_cut():
            self._printed_at = time.monotonic()
            self._later(self._settings.heartbeat_every, self._check)
        elif timeout is None:
            self._later(self._settings.reported_stall / PROGRESS_REPORTS, self._check)
        elif (left := self._printed_at + timeout - time.monotonic()) > 0:
            self._later(left, self._check)
        elif not again:
            self._later(timeout / PROGRESS_REPORTS, lambda: self._check(again=True))
        else:
            self._collect(timeout)

    def _timeout(self) -> float | None:
        return self._pauses.timeout if self._settings.stall == "auto" else self._settings.stall

    def _collect(self, timeout: float) -> None:
        printed_at, quiet_for = self._printed_at, time.monotonic() - self._printed_at
        within = self._settings.survey_within(self._settings.evidence_within)
        self._survey = self._surveys.begin(
            within, lambda answers: self._report(printed_at, quiet_for, timeout, answers), to_file=True
        )

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _report(self, printed_at: float, quiet_for: float, timeout: float, answers: Answers) -> None:
        self._survey = None
        if self._printed_at > printed_at:  # a trainer has printed something while evidence was collected
            self._check()
            return
        limit = f"{timeout:g}"
        if self._settings.stall == "auto":
            limit = f"auto: here {timeout:.0f} s, the longest pause before was {self._pauses.longest:.0f} s"
        parts = [
            f"the job is stalled: no trainer has printed anything for {quiet_for:.0f} s "
            f"(LAUNCHER_STALL_TIMEOUT={limit})",
            grouping.summary(answers, self._shape()),
            self._describe_last_line(),
            self._describe_processes(answers),
        ]
        self.stop()
        self._on_stalled(Cause(CauseKind.STALLED, None, "", "; ".join(filter(None, parts)), Exit.STALLED))

    def _describe_last_line(self) -> str:
        if self._last is None:
            return "no trainer has printed a line since training began"
        rank, line = self._last
        return f"the last line was of {self._shape().name(rank)}: {line!r}"

    def _describe_processes(self, answers: Answers) -> str:
        """Return how many processes each member has. The text names only a limited number of members."""
        shape, alike = self._shape(), defaultdict[str, list[int]](list)
        for rank in range(shape.size):
            alike[_describe_answer(answers, rank)].append(rank)
        if len(alike) == 1:
            return f"each member {next(iter(alike))}"
        parts = [f"{grouping.few(ranks, shape.names)} {words}" for words, ranks in alike.items()]
        return ", ".join(parts[: grouping.MAX_NAMED])


def _describe_answer(answers: Answers, rank: int) -> str:
    report = answers.get(rank)
    if report is None:
        return "has not reported its processes"
    problem = "" if report.written else " and could not write the evidence to a file"
    return f"has {report.processes} process{'' if report.processes == 1 else 'es'}{problem}"
