"""The launcher's own Generations in the simulated world, on a real folder that answers after a scheduled delay."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from typing import TypeVar

from launcher.base.passes import pass_folder
from launcher.errors import Exit, Failure
from launcher.gang import StartRefused, Verdict
from launcher.model import Cause, Member, Roster, Saves, Shape, Start
from launcher.run.restarts import RestartPolicy
from launcher.run.resume import Generations
from launcher.store.record import History, Record
from tests.simulation.schedule import Schedule

T = TypeVar("T")

_IN_MEMORY = "/dev/shm"
_LOOKS = 4  # about how often the preparation of a start accesses the volume


class HubsGenerations:
    """Generations, with the interface that the hub's session uses."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._starts = 0
        self._folder = tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None)
        self._output = self._folder.name
        self._record = Record(self._output, "job")
        hosts = [f"10.0.0.{rank}" for rank in range(schedule.size)]
        self._roster = Roster(tuple(Member(f"pod-{rank}", "", host, host, rank) for rank, host in enumerate(hosts)))
        policy = RestartPolicy(
            schedule.restarts,
            0,
            sees_passes=True,
            sees_saves=schedule.saves,
            has_identity=True,
            rejoins=schedule.rejoins,
        )
        self._generations = Generations(
            policy,
            Saves(self._output) if schedule.saves else None,
            self._record,
            History({}, Shape(schedule.size)),
            None,
            sees_passes=True,
            output=self._output,
            pod="pod-0",
            written=lambda: None,
            from_volume=self._from_volume,
        )

    def close(self) -> None:
        self._folder.cleanup()

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        return self._generations.judge(cause)

    async def prepare(self, cause: Cause | None) -> Start | Cause:
        self._starts += 1
        try:
            return await self._generations.prepare(cause, self._roster)
        except StartRefused as refused:
            return refused.cause

    def passed(self, number: int) -> None:
        """Save a pass of trainer 0."""
        if self._schedule.saves:
            place = pass_folder(self._output, number)
            os.makedirs(place, exist_ok=True)
            open(os.path.join(place, "done"), "w").close()
        self._generations.passed()

    def claim_for_another_gang(self) -> int:
        """Claim the next free generation for another gang of this job, and return its number."""
        number = 0
        while not self._record.claim(number, "pod-x"):
            number += 1
        return number

    async def _from_volume(self, work: Callable[[], T]) -> T:
        """Do the work after a delay, even if the caller was cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        refuses = self._starts - 1 == self._schedule.refuses

        def do() -> None:
            if refuses:
                _tell(answer, Failure(Exit.IO_FAILED, f"start {self._starts - 1} is refused"))
                return
            result = work()
            if not answer.done():
                answer.set_result(result)

        loop.call_later(self._schedule.prepares / _LOOKS, do)
        return await answer


def _tell(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
