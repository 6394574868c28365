"""Keep the job's generations on the hub: record how each generation ends, and decide where the next one starts."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from launcher.base.files import FromVolume
from launcher.base.passes import pass_folder, pass_name
from launcher.errors import Exit, Failure
from launcher.gang import AlreadyComplete, OtherGang, StartRefused, Verdict
from launcher.model import Cause, CauseKind, Roster, Saves, Start
from launcher.run.restarts import Generation, RestartPolicy
from launcher.store import checkpoints
from launcher.store.lease import LeaseHolder, OtherGangRuns
from launcher.store.record import History, Record

log = logging.getLogger(__name__)

_FIRST_LOOK, _LONGEST_LOOK = 1.0, 30.0  # seconds between two looks for a pass that is being saved
_GROW_LOOK = 0.5  # seconds between two looks for a saved pass while members wait to join
_NAMED = 3  # passes, in a message about passes that are moved


class Generations:
    """The generations of one job, over all sessions in which this launcher is the hub.

    lease: None if the job has no identity, since such a job cannot be distinguished from another job
    sees_passes: the launcher learns of each finished pass
    written: called whenever the history has changed
    """

    def __init__(
        self,
        policy: RestartPolicy,
        saves: Saves | None,
        record: Record,
        history: History,
        lease: LeaseHolder | None,
        *,
        sees_passes: bool,
        output: str,
        pod: str,
        written: Callable[[], None],
        from_volume: FromVolume,
        is_elastic: bool = False,
    ) -> None:
        self.history = history
        self._policy = policy
        self._saves = saves
        self._record = record
        self._lease = lease
        self._sees_passes = sees_passes
        self._output = output
        self._pod = pod
        self._written = written
        self._from_volume = from_volume
        self._is_elastic = is_elastic
        self._looking: asyncio.Task[None] | None = None  # for the first pass that this generation saves
        self._is_behind = False  # whether another gang of this job may have run newer generations
        self._passes_are_ours = False  # whether passes of earlier jobs were moved aside

    # ---- what happens to the generation that runs --------------------------------------------------------------------

    def passed(self) -> None:
        """Record that a trainer has logged the end of a pass. If passes are saved, look until one is saved."""
        self._policy.passed()
        latest = self._policy.latest
        if latest is None or latest.progressed:
            self._write()
        elif self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_save(latest))

    async def _look_for_save(self, generation: Generation) -> None:
        """Record progress as soon as the generation has saved a pass: at its end, there may be no launcher left."""
        pause = _FIRST_LOOK
        while self._awaits_progress(generation):
            try:
                saved = await self._has_saved(generation)
            except Failure:
                saved = False  # the volume does not answer: look again
            if saved and self._awaits_progress(generation):
                self._policy.progressed()
                self._write()
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK)

    def _awaits_progress(self, generation: Generation) -> bool:
        return generation is self._policy.latest and generation.ended_by is None and not generation.progressed

    async def pass_saved(self, is_wanted: Callable[[], bool]) -> bool:
        """Wait until a newer pass is saved, or until the job cannot save passes. False if it is not wanted any more.

        The last pass does not count: after it, nothing is left to train.
        """
        if self._saves is None:
            return is_wanted()
        passes = self._saves.wanted
        last = None if passes is None else self._saves.first + passes - 1
        seen: set[int | None] = set()
        while is_wanted():
            try:
                newest = await self._from_volume(partial(checkpoints.newest, self._saves))
            except Failure:  # the volume does not answer: look again
                newest = None
            else:
                if seen and newest not in {*seen, last}:
                    return True
                seen.add(newest)
            await asyncio.sleep(_GROW_LOOK)
        return False

    def stop_looking(self) -> None:
        """Look for no further pass, and write nothing more about passes: the caller leaves the gang."""
        if self._looking is not None:
            self._looking.cancel()

    async def last_pass_flaw(self) -> str | None:
        """Return what is wrong with the last pass on the volume, or None. With a flaw, the job is not complete."""
        if self._saves is None:
            return None
        resume, flaws = await self._from_volume(partial(checkpoints.survey, self._saves))
        if not self._saves.of_v0:  # a program may make folders with these names that do not follow docs/resume.md
            flaws = {number: problem for number, problem in flaws.items() if problem != checkpoints.NOT_DONE}
        if not flaws:
            return None
        last, again = max(flaws), "the first pass" if resume is None else f"pass {resume + 1}"
        return (
            f"{pass_folder(self._saves.folder, last)} is not whole: {flaws[last]}: is the volume full? Free some space "
            f"and start the job again: it then trains from {again} on"
        )

    def complete(self) -> None:
        """Record that the job is complete."""
        self.history.end(None)
        self._policy.progressed()
        self._write()

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        """Return the first cause to send to all members, and the verdict. Record the end of the generation."""
        ends = self._policy.latest is not None and self._policy.failed is None
        verdict = self._policy.judge(cause, time.monotonic())
        if ends:
            self.history.end(cause)
            self._write()
        return verdict

    def explain(self, cause: Cause) -> None:
        """Replace the recorded cause of the latest generation by `cause`, if both have the same kind and rank."""
        failed = self._policy.failed
        ended_by = failed.ended_by if failed else None
        if ended_by is not None and (ended_by.kind, ended_by.rank) == (cause.kind, cause.rank):
            self.history.end(cause)
            self._written()

    def _write(self) -> None:
        if self._sees_passes:
            self.history.without_progress = self._policy.without_progress
        self._written()

    # ---- where the next generation starts ----------------------------------------------------------------------------

    async def prepare(self, cause: Cause | None, roster: Roster) -> Start:
        """Claim the next generation, and return where it starts. Raises StartRefused or AlreadyComplete.

        cause: why the previous attempt of this session ended, or None for the first attempt

        The caller must call this only when all processes of the previous generation have ended.
        """
        try:
            await self._look_back()
            if cause is not None:
                await asyncio.sleep(self._policy.pause(time.monotonic()))
            await self._acquire_lease()
            await self._from_volume(partial(self._record.keep_ranks, roster))
            number = await self._claim_number()
            resume = await self._settle_passes(number)
        except Failure as failure:
            kind = CauseKind.PEERS if failure.code == Exit.TIMED_OUT else CauseKind.VOLUME
            raise StartRefused(Cause(kind, 0, self._pod, failure.message, failure.code)) from None
        before = self.history.trainers
        self._policy.begin(resume, time.monotonic())
        self.history.begin(number, resume, roster.shape.trainers)
        self._write()
        return Start(number, resume, before)

    async def _look_back(self) -> None:
        failed = self._policy.failed
        if failed is None:
            return
        saved = await self._has_saved(failed)
        if given_up := self._policy.look_back(saved, time.monotonic()):
            self._written()
            raise StartRefused(given_up)

    async def _has_saved(self, failed: Generation) -> bool:
        """Return whether the generation has saved a new pass. If its progress is known, the volume is not read."""
        if failed.progressed or self._saves is None:
            return failed.progressed
        newest = await self._from_volume(partial(checkpoints.newest, self._saves))
        return newest is not None and (failed.resume is None or newest > failed.resume)

    async def _acquire_lease(self) -> None:
        """Wait until no other gang trains into the folder, then take the lease. Raises AlreadyComplete or OtherGang.

        If another gang of this job has run meanwhile, read the history that the other gang has written.
        """
        if self._lease is None:
            return
        try:
            self._is_behind = await self._lease.acquire(yields=self._is_elastic) or self._is_behind
        except OtherGangRuns as other:
            raise OtherGang(f"the gang of pod {other} trains already: this gang joins it") from None
        if not self._is_behind:
            return
        if self.history.catch_up(await self._from_volume(self._record.attempts)):
            self._policy.catch_up(self.history.without_progress)
        if await self._from_volume(self._record.is_complete):
            raise AlreadyComplete
        self._is_behind = False

    async def _claim_number(self) -> int:
        """Claim the next number that no other gang of this job has claimed, and return this number."""
        latest = self.history.generation
        number = 0 if latest is None else latest + 1
        while not await self._from_volume(partial(self._record.claim, number, self._pod)):
            number += 1
        return number

    async def _settle_passes(self, number: int) -> int | None:
        """Return the newest whole pass of this job. Move aside passes of earlier jobs, and damaged passes."""
        saves = self._saves
        if saves is None:
            return None
        if not self._passes_are_ours and not await self._from_volume(self._record.has_begun):
            when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            found = await self._from_volume(partial(checkpoints.all_passes, saves))
            if into := await self._set_aside(saves, found, f"earlier-{when}"):
                names = pass_name(found[0]) + (f" to {pass_name(found[-1])}" if len(found) > 1 else "")
                back = f"to get them back when this job has ended: mv {into}/pass-* {saves.folder}/"
                log.info(f"moved {_count(found)} of an earlier job ({names}) to {into}; {back}")
            await self._from_volume(self._record.mark_begun)
        self._passes_are_ours = True
        resume, flaws = await self._from_volume(partial(checkpoints.survey, saves))
        if into := await self._set_aside(saves, sorted(flaws), f"incomplete-{number}"):
            named = [f"{pass_name(each)}: {flaws[each]}" for each in sorted(flaws)]
            more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            log.info(f"moved {_count(named)} of an unfinished attempt to {into}; {'; '.join(named[:_NAMED])}{more}")
        if resume is not None:
            log.info(f"the job resumes after pass {resume} ({pass_folder(saves.folder, resume)})")
        return resume

    async def _set_aside(self, saves: Saves, numbers: Sequence[int], name: str) -> str:
        """Move passes to a folder of this name in the job's output. Return its path, or "" if there is no pass."""
        into = os.path.join(self._output, name)
        if numbers:
            await self._from_volume(partial(checkpoints.set_aside, saves.folder, numbers, into))
        return into if numbers else ""


def _count(passes: Sequence[object]) -> str:
    return "1 pass" if len(passes) == 1 else f"{len(passes)} passes"
