"""The hub's decisions about generations: whether another one follows, after which pause, and from which pass."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from launcher.base.files import FromVolume
from launcher.base.passes import pass_folder
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.gang import AlreadyComplete, StartRefused, Verdict
from launcher.model import Cause, CauseKind, Roster, Saves, Start
from launcher.store import checkpoints
from launcher.store.history import History
from launcher.store.lease_holder import LeaseHolder
from launcher.store.record import MAX_ATTEMPTS, Record

log = logging.getLogger(__name__)

CANNOT_START = (126, 127)  # as a shell says it
NEVER_AGAIN = frozenset({*map(int, FOR_GOOD), *CANNOT_START})  # codes of children that no further try mends
LONGEST_PAUSE = 60.0
_LASTED = 60.0  # seconds; a generation whose passes nobody can see counts as progress when it ran for so long


@dataclass
class Running:
    """The generation that runs now."""

    resume: int | None
    begun: float
    passed: bool = False  # a pass was done
    ended_by: Cause | None = None


class Generations:
    """One gang's. `written` is called whenever the history has changed."""

    def __init__(
        self,
        most: int,
        saves: Saves | None,
        record: Record,
        history: History,
        tenure: LeaseHolder | None,
        *,
        counts: bool,
        gathers: bool,
        output: str,
        pod: str,
        written: Callable[[], None],
        from_volume: FromVolume,
        stalled_within: float = 0.0,
        forgets: bool = False,
        pause: float = 1.0,
    ) -> None:
        self._most = self._left = most
        self._forgets = forgets  # new pods would know nothing of this gang, and two roles would wait for each other
        self._saves = saves
        self._record = record
        self.history = history
        self._behind = False  # another gang of this job may have gone on meanwhile
        self._lease = tenure  # None: nothing tells this job from another
        self._counts = counts  # whether a pass that is done can be seen
        self._gathers = gathers
        self._output = output
        self._pod = pod
        self._stalled_within = stalled_within  # for which a job is silent, at most, before it counts as stalled
        self._written = written
        self._from_volume = from_volume
        self._first_pause = self._pause = pause
        self._before = history.without_progress
        self._running: Running | None = None
        self._failed_alike: tuple[str, int] | None = None  # how the generation before failed, if it got nowhere
        self._failed_at = 0.0
        self._begun = False  # the passes that are there are this job's

    # ---- what happens --------------------------------------------------------------------------------------------

    def passed(self) -> None:
        """A pass is done: no generation before this one counts any more."""
        if self._running is not None:
            self._running.passed = True
        self._count(0)

    def complete(self) -> None:
        self.history.end(None)
        self._count(0)

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        """The first cause of a failure as everybody is told it, and what follows from it."""
        running, gone = self._running, cause.kind.gone and self._gathers
        if running is None and cause.kind.is_child:  # one that starts before the first generation begins
            return self._restarted(cause)
        if running is None or running.ended_by is not None:  # between two generations, of which neither is at fault
            return cause, Verdict.REJOIN if gone else Verdict.STOP
        running.ended_by = cause
        self.history.end(cause)
        if not running.passed and cause.kind is CauseKind.STOPPED:
            self._count(self._before)
        elif not running.passed and self._counts and self._record.identity and self._before + 1 >= MAX_ATTEMPTS:
            attempts = f"{self._before + 1} attempts in a row ended before their first pass was done"
            return self._told(_final(cause, attempts)), Verdict.STOP
        if gone:
            return self._told(cause), Verdict.REJOIN
        return self._restarted(cause)

    def _restarted(self, cause: Cause) -> tuple[Cause, Verdict]:
        if not cause.kind.restartable or cause.code in NEVER_AGAIN or cause.final:
            return self._told(cause), Verdict.STOP
        if self._left <= 0:
            return self._told(self._used_up(cause)), Verdict.STOP
        self._left -= 1
        self._failed_at = time.monotonic()
        return self._told(cause), Verdict.RESTART

    def _used_up(self, cause: Cause) -> Cause:
        """New pods may do better, where somebody counts them for both roles."""
        return _final(cause, f"started again {self._most} times") if self._most and self._forgets else cause

    def explain(self, cause: Cause) -> None:
        """More is known of why the latest generation ended, if it was this."""
        ended_by = self._running.ended_by if self._running else None
        if ended_by is not None and (ended_by.kind, ended_by.rank) == (cause.kind, cause.rank):
            self.history.end(cause)
            self._written()

    async def prepare(self, cause: Cause | None, roster: Roster) -> Start:
        """Once nothing of the generation before is left: close_gracefully where the next one begins, and claim it."""
        try:
            await self._look_back()
            if cause is not None:
                pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
                await asyncio.sleep(self._failed_at + pause - time.monotonic())
            await self._wait_for_others()
            await self._from_volume(partial(self._record.keep_ranks, roster))
            number = await self._claim()
            resume = await self._settle_passes(number)
        except Failure as failure:
            kind = CauseKind.PEERS if failure.code == Exit.TIMED_OUT else CauseKind.VOLUME
            raise StartRefused(Cause(kind, 0, self._pod, failure.message, failure.code)) from None
        self._running = Running(resume, time.monotonic())
        self.history.begin(number, resume)
        self._count(self._before + 1)
        return Start(number, resume)

    async def _wait_for_others(self) -> None:
        """And catch up with what another gang of this job has done meanwhile."""
        if self._lease is None:
            return
        self._behind = await self._lease.begin() or self._behind
        if not self._behind:
            return
        self.history.catch_up(await self._from_volume(self._record.attempts))
        self._before = self.history.without_progress
        if await self._from_volume(self._record.is_complete):
            raise AlreadyComplete
        self._behind = False

    # ---- progress ------------------------------------------------------------------------------------------------

    async def _look_back(self) -> None:
        """On the generation before. Twice the same before any progress is a bug: a third time would be no different."""
        running = self._running
        cause = running.ended_by if running else None
        if running is None or cause is None:
            return
        if await self._made_progress(running, self._stalled_within if cause.kind is CauseKind.STALLED else 0.0):
            self._running, self._before, self._failed_alike, self._pause = None, 0, None, self._first_pause
            return
        self._running = None
        self._before += cause.kind is not CauseKind.STOPPED
        if not cause.kind.is_child and cause.kind is not CauseKind.STALLED:  # no bug of the program
            return
        if self._failed_alike == (cause.kind, cause.code):
            raise StartRefused(self._told(_final(cause, "twice the same, before any progress")))
        self._failed_alike = cause.kind, cause.code

    async def _made_progress(self, running: Running, silent: float) -> bool:
        if running.passed:
            return True
        if self._saves is not None and await self._newest(self._saves) not in (None, running.resume):
            return True
        return not self._counts and time.monotonic() - running.begun - silent >= _LASTED

    async def _newest(self, saves: Saves) -> int | None:
        return await self._from_volume(partial(checkpoints.newest, saves.folder, saves.first))

    # ---- where it begins -----------------------------------------------------------------------------------------

    async def _claim(self) -> int:
        """The next number, which no other gang of this job can have."""
        latest = self.history.generation
        number = 0 if latest is None else latest + 1
        while not await self._from_volume(partial(self._record.claim, number, self._pod)):
            number += 1
        return number

    async def _settle_passes(self, number: int) -> int | None:
        """The last whole pass of this job. What else lies there is moved out of the way, and said."""
        saves = self._saves
        if saves is None:
            return None
        if not self._begun and not await self._from_volume(self._record.has_begun):
            when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            await self._set_aside(saves, checkpoints.all_from, f"earlier-{when}", "an earlier job")
            await self._from_volume(self._record.mark_begun)
        self._begun = True
        resume = await self._newest(saves)
        await self._set_aside(saves, checkpoints.half_written, f"incomplete-{number}", "an unfinished attempt")
        if resume is not None:
            log.info(f"goes on after pass {resume}, {pass_folder(saves.folder, resume)}")
        return resume

    async def _set_aside(self, saves: Saves, which: Callable[[str, int], list[int]], name: str, whose: str) -> None:
        found = await self._from_volume(partial(which, saves.folder, saves.first))
        if not found:
            return
        into = os.path.join(self._output, name)
        await self._from_volume(partial(checkpoints.set_aside, saves.folder, found, into))
        passes = "1 pass" if len(found) == 1 else f"{len(found)} passes"
        log.info(f"{passes} of {whose}: moved to {into}")

    # ---- what is told --------------------------------------------------------------------------------------------

    def _count(self, without_progress: int) -> None:
        if self._counts:
            self.history.without_progress = without_progress
        self._written()

    def _told(self, cause: Cause) -> Cause:
        self._written()
        return cause


def _final(cause: Cause, why: str) -> Cause:
    return replace(cause, what=f"{cause.what}; given up: {why}", final=True)
