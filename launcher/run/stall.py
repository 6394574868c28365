"""The watchdog of one attempt on one member. It reports output of the trainers, and what all processes do.

Only the hub decides whether the job counts as stalled (`launcher.gang.stall`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from launcher import paddle
from launcher.base.aio import run_in_thread, wait_within
from launcher.base.files import Folder
from launcher.config import JobConfig
from launcher.errors import Failure
from launcher.gang import ALL_PASSES, NO_PASS, PROGRESS_REPORTS, SOME_PASSES, Gang, Progress
from launcher.model import Cause, MemberReport, Roster, Shape
from launcher.processes import evidence
from launcher.processes.activity import Work, work_of
from launcher.processes.evidence import Subject

log = logging.getLogger(__name__)

_LOOK_WITHIN = 6.0
_LOOK_WITHIN_FOR_USER = 2.5  # a user waits for the answer
_WRITE_WITHIN = 3.0


@dataclass(frozen=True)
class EvidenceFile:
    """Where to write the evidence of a stall, and its first line. If `is_shown`, it is logged, too."""

    path: str
    head: str
    is_shown: bool


class Watchdog:
    """Report output of the trainers, and answer the surveys of the hub.

    Any thread may call `printed`. All other methods must be called on the event loop.

    last_line: returns the last line that a trainer has printed
    silent_work: returns the trainers, by pid, whose work counts as output. A trainer of v0 reads its whole shard before
        its first batch, and prints nothing meanwhile.
    """

    def __init__(
        self,
        attempt: int,
        gang: Gang,
        last_line: Callable[[], str],
        silent_work: Callable[[], Sequence[int]] = lambda: (),
    ) -> None:
        self._attempt = attempt
        self._gang = gang
        self._last_line = last_line
        self._silent_work = silent_work
        self._observing: asyncio.Task[None] | None = None
        self._training_began_at = 0.0
        self._first_line_after: float | None = None  # see Progress
        self._longest_pause = 0.0
        self._counting = threading.Lock()  # several trainers may print at the same time
        self._passes, self._latest_pass, self._passes_done = NO_PASS, -1, 0
        self._loop = asyncio.get_running_loop()
        self._report_every = 0.0  # 0: no reports
        self._next_report = 0.0
        self._printed_at = 0.0
        self._is_due = False  # a progress report is scheduled
        self._answering: dict[asyncio.Task[None], int] = {}  # tasks, and their surveys

    def train(self, stall: float) -> None:
        """Start to report progress. The caller calls this when trainers start.

        stall: the stall timeout of the hub, in seconds; 0: report nothing
        """
        self._training_began_at = time.monotonic()
        self._report_every = stall / PROGRESS_REPORTS
        if stall:
            self._observing = asyncio.create_task(self._observe_work(stall / PROGRESS_REPORTS))

    async def _observe_work(self, every: float) -> None:
        """Report progress for trainers that print nothing, but compute or read."""
        before, looked_at = Work({}), time.monotonic()
        while True:
            await asyncio.sleep(every)
            if time.monotonic() - self._printed_at < every / 2 or not (pids := self._silent_work()):
                before = Work({})
                continue
            try:
                work, now = await run_in_thread(work_of, pids), time.monotonic()
            except (Failure, OSError):  # no thread or file descriptor is left: look again later
                before = Work({})
                continue
            if before.by_pid and work.continues(before, now - looked_at):
                self.printed()
            before, looked_at = work, now

    def printed(self) -> None:
        """Record that a trainer has just printed something."""
        now = time.monotonic()
        with self._counting:
            if self._first_line_after is None:  # a leading trainer may print before the training begins
                self._first_line_after = now - self._training_began_at if self._training_began_at else 0.0
            else:
                self._longest_pause = max(self._longest_pause, now - self._printed_at)
            self._printed_at = now
        self._report_soon()

    def _report_soon(self) -> None:
        if self._report_every and not self._is_due:
            self._is_due = True
            try:
                self._loop.call_soon_threadsafe(self._report)
            except RuntimeError:
                pass  # the loop has ended

    def passed(self, number: int, *, is_last: bool) -> None:
        """Record that a pass is done. Several trainers may report the same pass."""
        self._passes_done += number != self._latest_pass
        self._latest_pass = number
        passes = ALL_PASSES if is_last else SOME_PASSES if self._passes_done > 1 else NO_PASS
        if passes != self._passes:
            self._passes = passes
            self._report_soon()

    def _report(self) -> None:
        """Report progress now if a report is due. If not, report it when the next report is due."""
        now = time.monotonic()
        if now < self._next_report:
            self._loop.call_at(self._next_report, self._report)
            return
        self._is_due = False
        self._next_report = now + self._report_every
        line = next(iter(paddle.hide_environment((self._last_line(),))), "")
        report = Progress(line, self._first_line_after or 0.0, self._longest_pause, self._passes)
        self._gang.report_progress(self._attempt, self._printed_at, report)

    def answer(
        self, survey: int, phase: str, subjects: Sequence[Subject], peers: Mapping[str, str], file: EvidenceFile | None
    ) -> None:
        """Start to find out what all children do. Report it to the hub, after it is written to `file`."""
        task = asyncio.ensure_future(self._answer(survey, phase, subjects, peers, file))
        self._answering[task] = survey
        task.add_done_callback(lambda done: self._answering.pop(done, None))

    def close(self) -> None:
        """Stop reporting and collecting. The caller calls this when the attempt ends."""
        self._report_every = 0.0
        if self._observing is not None:
            self._observing.cancel()
        for task, survey in list(self._answering.items()):
            task.cancel()
            self._gang.report_collected(survey, MemberReport("ending", 0, ()))

    async def _answer(
        self, survey: int, phase: str, subjects: Sequence[Subject], peers: Mapping[str, str], file: EvidenceFile | None
    ) -> None:
        subjects = [replace(each, lines=paddle.hide_environment(each.lines)) for each in subjects]
        if file:
            found = await evidence.gather(subjects, peers, _LOOK_WITHIN)
        else:
            found = await evidence.look(subjects, _LOOK_WITHIN_FOR_USER)
        is_written = file is None or await self._write(file, found.text)
        self._gang.report_collected(survey, MemberReport(phase, found.processes, found.states, is_written))

    async def _write(self, file: EvidenceFile, text: str) -> bool:
        text = f"{file.head}\n\n{text}\n"
        if file.is_shown:
            log.info(text)
        try:
            await wait_within(run_in_thread(partial(_write, file.path, text.encode(errors="replace"))), _WRITE_WITHIN)
            problem = ""
        except asyncio.TimeoutError:
            problem = f"cannot write {file.path}: the volume has not answered for {_WRITE_WITHIN:g} s"
        except Failure as failure:
            problem = failure.message
        log.info(problem or f"evidence of the stall is written to {file.path}")
        return not problem


def file_name(generation: int) -> str:
    """Return the name of the evidence file in the member's folder."""
    return f"stalled-{generation}.txt"


def names(roster: Roster, shape: Shape) -> dict[str, str]:
    """Return the names of members by address. Both addresses of each member are keys."""
    return {
        address: shape.name(rank)
        for rank, member in enumerate(roster.members)
        for address in (member.address, member.training_address)
    }


def with_place(cause: Cause, config: JobConfig, generation: int) -> Cause:
    """Return the cause with a longer text, which says where the evidence is."""
    place = os.path.join(config.output, "*", file_name(generation)) if config.job_folder else "see the log of each pod"
    return replace(cause, what=f"{cause.what}; what each process was doing: {place}")


def _write(path: str, data: bytes) -> None:
    folder, name = os.path.split(path)
    Folder(*os.path.split(folder)).write(name, data)
