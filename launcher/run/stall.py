"""The watchdog of one attempt on one member. It reports output of the trainers, and collects evidence of a stall.

Only the hub decides whether the job counts as stalled (`launcher.gang.stall`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from launcher import paddle
from launcher.base.aio import run_in_thread, wait_within
from launcher.base.files import Folder
from launcher.config import JobConfig
from launcher.errors import Failure
from launcher.gang import PROGRESS_REPORTS, Gang
from launcher.model import Cause, Roster, Shape
from launcher.processes import evidence
from launcher.processes.activity import Work, work_of
from launcher.processes.evidence import Subject

log = logging.getLogger(__name__)

_LOOK_WITHIN = 6.0
_WRITE_WITHIN = 3.0


class Watchdog:
    """Report output of the trainers, and collect evidence of a stall.

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
        self._loop = asyncio.get_running_loop()
        self._report_every = 0.0  # 0: no reports
        self._next_report = 0.0
        self._printed_at = 0.0
        self._is_due = False  # a progress report is scheduled
        self._collecting: asyncio.Task[None] | None = None

    def train(self, stall: float) -> None:
        """Start to report progress. The caller calls this when trainers start.

        stall: the stall timeout of the hub, in seconds; 0: report nothing
        """
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
            work, now = await run_in_thread(work_of, pids), time.monotonic()
            if before.by_pid and work.continues(before, now - looked_at):
                self.printed()
            before, looked_at = work, now

    def printed(self) -> None:
        """Record that a trainer has just printed something."""
        self._printed_at = time.monotonic()
        if self._report_every and not self._is_due:
            self._is_due = True
            try:
                self._loop.call_soon_threadsafe(self._report)
            except RuntimeError:
                pass  # the loop has ended

    def _report(self) -> None:
        """Report progress now if a report is due. If not, report it when the next report is due."""
        now = time.monotonic()
        if now < self._next_report:
            self._loop.call_at(self._next_report, self._report)
            return
        self._is_due = False
        self._next_report = now + self._report_every
        line = next(iter(paddle.hide_environment((self._last_line(),))), "")
        self._gang.report_progress(self._attempt, self._printed_at, line)

    def collect(
        self, subjects: Sequence[Subject], peers: Mapping[str, str], path: str, head: str, *, show: bool
    ) -> None:
        """Start to write evidence about all children to the file at `path`. Report to the hub when it is written.

        head: the first lines of the text
        show: whether to log the evidence, too
        """
        self._collecting = asyncio.ensure_future(self._collect(subjects, peers, path, head, show))

    def close(self) -> None:
        """Stop reporting and collecting. The caller calls this when the attempt ends."""
        self._report_every = 0.0
        for task in (self._collecting, self._observing):
            if task is not None:
                task.cancel()

    async def _collect(
        self, subjects: Sequence[Subject], peers: Mapping[str, str], path: str, head: str, show: bool
    ) -> None:
        subjects = [replace(each, lines=paddle.hide_environment(each.lines)) for each in subjects]
        found = await evidence.gather(subjects, peers, _LOOK_WITHIN)
        text = f"{head}\n\n{found.text}\n"
        if show:
            log.info(text)
        try:
            await wait_within(run_in_thread(partial(_write, path, text.encode(errors="replace"))), _WRITE_WITHIN)
            problem = ""
        except asyncio.TimeoutError:
            problem = f"cannot write {path}: the volume has not answered for {_WRITE_WITHIN:g} s"
        except Failure as failure:
            problem = failure.message
        log.info(problem or f"evidence of the stall is written to {path}")
        self._gang.report_collected(self._attempt, found.processes, not problem)


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
