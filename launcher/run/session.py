"""One gang as this member lives it: the way there, its turns, and the leaving. Another gang is another membership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.config import JobConfig
from launcher.gang import Begin, Gang, GangSettings, Verdict
from launcher.model import Cause, CauseKind, Process, Start
from launcher.processes.guardian import Guardian
from launcher.run import outcome, stall
from launcher.run.attempt import Attempt
from launcher.run.event_source import EventSource
from launcher.run.factories import Factories
from launcher.run.join import Joined, Joining
from launcher.run.node import Node
from launcher.run.resume import Generations

FAREWELL = 2.0  # what the end may take for logs and files, all together


@dataclass(frozen=True)
class AttemptEnded:
    """Nothing runs any more of the turn before, but what the kernel holds."""

    left: Sequence[Process]


@dataclass(frozen=True)
class SessionEnded:
    """The turn before the gang is to gather again has ended here; `cause` is why, with what is known by now."""

    cause: Cause
    processes: Sequence[Process]


class Session:
    """What is made anew for each gang and forgotten with it. `told` is done once a signal says stop."""

    def __init__(
        self,
        config: JobConfig,
        node: Node,
        queue: asyncio.Queue[tuple[EventSource, object]],
        guardian: Guardian | None,
        told: asyncio.Future[None],
        factories: Factories,
        *,
        rejoin: bool,
    ) -> None:
        self._config = config
        self._node = node
        self._queue = queue
        self._guardian = guardian
        self._told = told
        self._factories = factories
        self.events = EventSource(queue)
        self._settings = _settings(config)
        self.gang = Gang(
            self._settings,
            self.events,
            complete=node.mark_complete,
            judge=self._judge,
            prepare=self._prepare,
        )
        self.joining = Joining(config, self.gang, self.events, rejoin=rejoin, staged=node.staged, factories=factories)
        self.joined = False  # from the roster to the leaving
        self.begun: Begin | None = None
        self.generations: asyncio.Future[Generations] = asyncio.get_running_loop().create_future()  # on the hub
        self._ending_turn: asyncio.Task[Sequence[Process]] | None = None  # the one before
        self._leaving: asyncio.Task[None] | None = None
        self.turn = self._new_turn(0)
        if node.staged:
            self.gang.report_staged()

    def join(self, joined: Joined) -> None:
        """The gang is complete."""
        self.joined = True
        self._node.take(joined, self._settings)
        if joined.rank == 0 and self._node.generations:
            self.generations.set_result(self._node.generations)

    # ---- turns ---------------------------------------------------------------------------------------------------

    def restart(self, turn: int, grace: float) -> None:
        """End what runs here; TurnEnded comes when that is done."""
        self.place_early_logs()
        self.begun = None
        self._end_turn(grace)
        self.turn = self._new_turn(turn)

    def place_early_logs(self) -> None:
        """Of servers that started, and perhaps failed, before a generation began."""
        if self._node.journal and self.begun is None:
            mark = f"pod {self._node.name}, before a generation began"
            self.turn.supervisor.set_log_folder(self._node.journal.folder, mark)

    async def end_children(self, grace: float) -> None:
        """All of them, with those of the way and of the turn before."""
        before = [self._ending_turn] if self._ending_turn else []
        await asyncio.gather(self.joining.end(), self.turn.supervisor.end(grace), *before)

    def _new_turn(self, number: int) -> Attempt:
        watched = self._config.gang.stall_timeout > 0
        events = EventSource(self._queue)
        turn = Attempt(number, events, self.gang, self._guardian, self._factories, watched=watched)
        if self._node.staged:
            turn.order.staged()
        if self._told.done():
            turn.order.close()
        return turn

    def _end_turn(self, grace: float) -> asyncio.Task[Sequence[Process]]:
        """And the one before, which may still be ending."""
        before = [self._ending_turn] if self._ending_turn and not self._ending_turn.done() else []
        self._ending_turn = asyncio.ensure_future(self._see_the_end(self.turn.end(grace, FAREWELL), *before))
        return self._ending_turn

    async def _see_the_end(self, *ends: Awaitable[Sequence[Process]]) -> Sequence[Process]:
        left = [process for each in await asyncio.gather(*ends) for process in each]
        self.events(AttemptEnded(left))
        return left

    # ---- the leaving ---------------------------------------------------------------------------------------------

    def leave(self, cause: Cause, grace: float, events: Callable[[SessionEnded], None]) -> None:
        """End what runs here and close the gang, of which nothing is heard any more. When that is done comes Left."""
        self.joined = False
        self.place_early_logs()
        self.events.close()
        self.turn.over()
        self._leaving = asyncio.ensure_future(self._leave(cause, self._end_turn(grace), events))

    async def _leave(
        self, cause: Cause, ending: asyncio.Task[Sequence[Process]], events: Callable[[SessionEnded], None]
    ) -> None:
        told, *_ = await asyncio.gather(self.explained(cause), self._see_all_end(cause, ending), self.joining.end())
        if told.kind is CauseKind.LOST or told != cause:
            await self.explain_end(told)
        events(SessionEnded(told, ending.result()))

    async def explain_end(self, cause: Cause) -> None:
        """What the hub could not say any more, for the history, if that is how a generation has ended."""
        if self.begun is not None:
            await self._node.explain_end(self.begun.start.generation, cause)

    async def _see_all_end(self, cause: Cause, ending: asyncio.Task[Sequence[Process]]) -> None:
        """Here, and then everywhere: another gang must find nothing of this one."""
        await ending
        self.gang.report_stopped()
        await self.gang.wait_finished()
        if self._node.rank == 0 or cause.rank == 0:
            await self._node.leave_folder(self.gang.remaining_run_time())
        await self.gang.close()

    async def explained(self, cause: Cause) -> Cause:
        """A peer that was lost, or told to stop, cannot say why: one member asks those who may know."""
        if not cause.kind.gone or not outcome.stands_for(cause, self._node.rank) or self._told.done():
            return cause
        asked = asyncio.ensure_future(self.joining.what_became_of(cause.pod))
        either: list[asyncio.Future[Any]] = [asked, self._told]  # all may be told to stop, one after the other
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return cause
        became = asked.result()
        return replace(cause, what=f"{cause.what}; Kubernetes says: {became}") if became else cause

    # ---- what the gang asks on the hub ---------------------------------------------------------------------------

    def _judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        if cause.kind is CauseKind.STALLED and self.begun:
            cause = stall.with_place(cause, self._config, self.begun.start.generation)
        return self.generations.result().judge(cause) if self.generations.done() else (cause, Verdict.STOP)

    async def _prepare(self, cause: Cause | None) -> Start:
        generations = await asyncio.shield(self.generations)  # whoever stops waiting must not end it
        assert self._node.roster is not None
        return await generations.prepare(cause, self._node.roster)


def _settings(config: JobConfig) -> GangSettings:
    return GangSettings(
        config.members,
        config.gang.port,
        (config.pod_ip,) if config.pod_ip else None,
        silence=config.gang.silence,
        stall=config.gang.stall_timeout,
        pservers=config.shape.pservers,
        grace=config.stop_grace,
        rejoins=config.rejoins,
    )
