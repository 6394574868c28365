"""One session in a gang: join, run attempts, leave."""

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

FLUSH_WITHIN = 2.0  # seconds for logs and files at the end, all together


@dataclass(frozen=True)
class AttemptEnded:
    """The processes of the previous attempt have ended, except those in `left`, which are blocked in the kernel."""

    left: Sequence[Process]


@dataclass(frozen=True)
class SessionEnded:
    """This member has left the gang, to join a new one. `cause`: why, with what Kubernetes knows about it."""

    cause: Cause
    left: Sequence[Process]  # processes that are blocked in the kernel


class Session:
    """Everything that belongs to one gang, and ends together with this gang.

    stop_requested: is done once a signal has told this member to stop
    """

    def __init__(
        self,
        config: JobConfig,
        node: Node,
        queue: asyncio.Queue[tuple[EventSource, object]],
        guardian: Guardian | None,
        stop_requested: asyncio.Future[None],
        factories: Factories,
        *,
        rejoin: bool,
    ) -> None:
        self._config = config
        self._node = node
        self._queue = queue
        self._guardian = guardian
        self._stop_requested = stop_requested
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
        self.joined = False  # from the complete roster until this member leaves
        self.begun: Begin | None = None
        self.generations: asyncio.Future[Generations] = asyncio.get_running_loop().create_future()  # on the hub
        self._ending_attempt: asyncio.Task[Sequence[Process]] | None = None  # the end of the previous attempt
        self._leaving: asyncio.Task[None] | None = None
        self.attempt = self._new_attempt(0)
        if node.staged:
            self.gang.report_staged()

    def join(self, joined: Joined) -> None:
        """Take the roster of the complete gang."""
        self.joined = True
        self._node.join(joined, self._settings)
        if joined.rank == 0 and self._node.generations:
            self.generations.set_result(self._node.generations)

    # ---- attempts ----------------------------------------------------------------------------------------------------

    def restart(self, attempt: int, grace: float) -> None:
        """End the processes of this attempt, and make the next attempt. AttemptEnded comes when they have ended."""
        self.place_early_logs()
        self.begun = None
        self._end_attempt(grace)
        self.attempt = self._new_attempt(attempt)

    def place_early_logs(self) -> None:
        """If no generation has begun, write the logs of servers that have started to the member's folder."""
        if self._node.journal and self.begun is None:
            mark = f"pod {self._node.name}, before a generation began"
            self.attempt.supervisor.set_log_folder(self._node.journal.folder, mark)

    async def end_children(self, grace: float) -> None:
        """End all child processes: those of this attempt, of the previous attempt and of the join."""
        before = [self._ending_attempt] if self._ending_attempt else []
        await asyncio.gather(self.joining.end(), self.attempt.supervisor.end(grace), *before)

    def _new_attempt(self, number: int) -> Attempt:
        watched = self._config.gang.stall_timeout > 0
        events = EventSource(self._queue)
        attempt = Attempt(number, events, self.gang, self._guardian, self._factories, watched=watched)
        if self._node.staged:
            attempt.order.staged()
        if self._stop_requested.done():
            attempt.order.close()
        return attempt

    def _end_attempt(self, grace: float) -> asyncio.Task[Sequence[Process]]:
        """End this attempt. The previous attempt may still be ending: wait for both."""
        before = [self._ending_attempt] if self._ending_attempt and not self._ending_attempt.done() else []
        self._ending_attempt = asyncio.ensure_future(self._report_end(self.attempt.end(grace, FLUSH_WITHIN), *before))
        return self._ending_attempt

    async def _report_end(self, *ends: Awaitable[Sequence[Process]]) -> Sequence[Process]:
        left = [process for each in await asyncio.gather(*ends) for process in each]
        self.events(AttemptEnded(left))
        return left

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def leave(self, cause: Cause, grace: float, events: Callable[[SessionEnded], None]) -> None:
        """End the processes and leave the gang. From now on, drop its events. SessionEnded comes at the end."""
        self.joined = False
        self.place_early_logs()
        self.events.close()
        self.attempt.close()
        self._leaving = asyncio.ensure_future(self._leave(cause, self._end_attempt(grace), events))

    async def _leave(
        self, cause: Cause, ending: asyncio.Task[Sequence[Process]], events: Callable[[SessionEnded], None]
    ) -> None:
        explained, *_ = await asyncio.gather(self.explained(cause), self._end_gang(cause, ending), self.joining.end())
        if explained.kind is CauseKind.LOST or explained != cause:
            await self.explain_end(explained)
        events(SessionEnded(explained, ending.result()))

    async def explain_end(self, cause: Cause) -> None:
        """Replace the recorded cause of the generation that this cause has ended, if its hub could not write it."""
        if self.begun is not None:
            await self._node.explain_end(self.begun.start.generation, cause)

    async def _end_gang(self, cause: Cause, ending: asyncio.Task[Sequence[Process]]) -> None:
        """Wait until all processes have ended on all members, then close the gang.

        When the next gang starts its processes, no process of this gang may still run.
        """
        await ending
        self.gang.report_stopped()
        await self.gang.wait_finished()
        if self._node.rank == 0 or cause.rank == 0:
            await self._node.release_folder(self.gang.remaining_run_time())
        await self.gang.close()

    async def explained(self, cause: Cause) -> Cause:
        """Return the cause, with what Kubernetes knows about a member that is gone. Only one member asks it."""
        if not cause.kind.gone or not outcome.stands_for(cause, self._node.rank) or self._stop_requested.done():
            return cause
        asked = asyncio.ensure_future(self.joining.ask_about(cause.pod))
        # If all pods are deleted one after the other, a signal comes here, too, and ends the wait.
        either: list[asyncio.Future[Any]] = [asked, self._stop_requested]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return cause
        answer = asked.result()
        return replace(cause, what=f"{cause.what}; Kubernetes says: {answer}") if answer else cause

    # ---- decisions of the hub ----------------------------------------------------------------------------------------

    def _judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        if cause.kind is CauseKind.STALLED and self.begun:
            cause = stall.with_place(cause, self._config, self.begun.start.generation)
        return self.generations.result().judge(cause) if self.generations.done() else (cause, Verdict.STOP)

    async def _prepare(self, cause: Cause | None) -> Start:
        generations = await asyncio.shield(self.generations)  # cancelling this wait must not cancel the future
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
