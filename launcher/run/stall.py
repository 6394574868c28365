"""The watchdog's part on each member, a turn long: whether its trainers print, and the evidence when nobody's do.

When a job counts as stalled is decided on the hub (`launcher.gang.stall`).
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
from launcher.base import files
from launcher.base.aio import run_in_thread, wait_within
from launcher.config import JobConfig
from launcher.errors import Failure
from launcher.gang import PROGRESS_REPORTS, Gang
from launcher.model import Cause, Roster, Shape
from launcher.processes import evidence
from launcher.processes.evidence import Subject

log = logging.getLogger(__name__)

_LOOK_WITHIN = 6.0
_WRITE_WITHIN = 3.0


class Watchdog:
    """`printed` may be called from any thread, everything else on the loop. `last_line` is what a trainer said last."""

    def __init__(self, turn: int, gang: Gang, last_line: Callable[[], str]) -> None:
        self._turn = turn
        self._gang = gang
        self._last_line = last_line
        self._loop = asyncio.get_running_loop()
        self._every = 0.0  # off
        self._next = 0.0
        self._printed_at = 0.0
        self._due = False  # to tell of what was printed
        self._collecting: asyncio.Task[None] | None = None

    def train(self, stall: float) -> None:
        """Trainers start. 0: nobody asks whether they print."""
        self._every = stall / PROGRESS_REPORTS

    def printed(self) -> None:
        """A trainer has just printed something."""
        self._printed_at = time.monotonic()
        if self._every and not self._due:
            self._due = True
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                pass  # the loop has ended

    def _tell(self) -> None:
        """At once after a while of silence, else when it is time again."""
        now = time.monotonic()
        if now < self._next:
            self._loop.call_at(self._next, self._tell)
            return
        self._due = False
        self._next = now + self._every
        line = next(iter(paddle.hide_environment((self._last_line(),))), "")
        self._gang.report_progress(self._turn, self._printed_at, line)

    def collect(
        self, subjects: Sequence[Subject], peers: Mapping[str, str], path: str, head: str, *, show: bool
    ) -> None:
        """Write down what all children do, and say when it is done. `show`: on standard error, too, which is kept."""
        self._collecting = asyncio.ensure_future(self._collect(subjects, peers, path, head, show))

    def close(self) -> None:
        """This turn is over."""
        self._every = 0.0
        if self._collecting is not None:
            self._collecting.cancel()

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
            problem = f"{path} is not written after {_WRITE_WITHIN:g} s"
        except Failure as failure:
            problem = failure.message
        log.info(problem or f"what the processes are doing is written to {path}")
        self._gang.report_collected(self._turn, found.processes, not problem)


def file_name(generation: int) -> str:
    """Of the evidence, in the member's folder."""
    return f"stalled-{generation}.txt"


def names(roster: Roster, shape: Shape) -> dict[str, str]:
    """Of the members, by each of their addresses."""
    return {
        address: shape.name(rank)
        for rank, member in enumerate(roster.members)
        for address in (member.address, member.training_address)
    }


def with_place(cause: Cause, config: JobConfig, generation: int) -> Cause:
    """The cause, with where all the evidence is."""
    place = os.path.join(config.output, "*", file_name(generation)) if config.job_folder else "see the log of each pod"
    return replace(cause, what=f"{cause.what}; what each process was doing: {place}")


def _write(path: str, data: bytes) -> None:
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, data)
