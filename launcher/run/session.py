"""Run one session: join a gang, start the processes as often as the hub decides, and leave."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.gang import (
    Begin,
    Collect,
    Elastic,
    Event,
    Finish,
    Gang,
    GangSettings,
    Hold,
    HubLost,
    Lead,
    Restart,
    Stop,
    Train,
    Until,
    Verdict,
)
from launcher.model import Cause, CauseKind, Process, Share, Start, describe_cause
from launcher.processes.guardian import Guardian
from launcher.run import deaths, outcome, stall
from launcher.run.attempt import Attempt
from launcher.run.factories import Factories
from launcher.run.failures import Failures, brief
from launcher.run.join import Joining
from launcher.run.leader import Before
from launcher.run.node import Node
from launcher.run.signals import Signals
from launcher.run.steps import Steps

log = logging.getLogger(__name__)

FLUSH_WITHIN = 2.0  # seconds at the end to write all logs and files
_GROW_LOOK = 0.5  # seconds between two looks whether the trainers count steps
FAILURE_GRACE = 1.0  # seconds for processes to end after a failure: they have nothing to save


@dataclass(frozen=True)
class Rejoin:
    """This member has left its gang because of `cause`, and joins a new gang."""

    cause: Cause


Decision = Restart | Stop | Finish | HubLost


class Session:
    """One session of this member in one gang. Everything in it ends together with this gang.

    after: why the previous session ended; None for the first session
    """

    def __init__(
        self,
        config: JobConfig,
        command: Sequence[str],
        node: Node,
        signals: Signals,
        guardian: Guardian | None,
        factories: Factories,
        after: Cause | None = None,
    ) -> None:
        self._config = config
        self._command = command
        self._node = node
        self._signals = signals
        self._guardian = guardian
        self._factories = factories
        self._after = after
        self._decisions: asyncio.Queue[Decision] = asyncio.Queue()
        self._settings = _settings(config, node, after)
        self.gang = Gang(
            self._settings,
            self._on_event,
            complete=node.mark_complete,
            judge=self._judge,
            prepare=self._prepare,
            seen=node.record_peer,
            newcomer=self._grow_later,
        )
        self.joining = Joining(
            config,
            self.gang,
            before=Before.of(node.roster, after) if after and node.roster else None,
            rejoin=after is not None,
            factories=factories,
            earlier_causes=node.earlier_causes,
        )
        self.failures = Failures(self.gang, expired=lambda cause: self._decide(Stop(cause)))
        self._has_joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._steps = Steps(self._step_failed)
        self._growing: asyncio.Task[None] | None = None  # on the hub of an elastic job, while members wait
        self._ending: dict[Attempt, asyncio.Task[Sequence[Process]]] = {}  # attempts, with the tasks that end them
        self.attempt = self._new_attempt(0)
        signals.on_stop = self._request_stop
        signals.on_kill = self._kill

    async def run(self) -> Stop | Finish | Rejoin:
        """Join a gang, then start the processes as often as the hub decides. Return how the session ends."""
        if self._after is None:
            self.attempt.serve_early()
        self._steps.begin(CauseKind.PEERS, self._join)
        self._steps.begin(CauseKind.STAGING, self._stage)
        running = self._steps.begin(CauseKind.LAUNCHER, partial(self.attempt.run, self._has_joined))
        if self._signals.stop_requested.done():
            self._request_stop()
        while True:
            decision = await self._decisions.get()
            running.cancel()
            match decision:
                case Restart(number, cause):
                    running = self._restart(number, cause)
                case Stop(cause, True) if self._may_rejoin(cause):
                    return await self._leave(cause)
                case HubLost(cause):
                    return await self._without_hub(cause)
                case Stop() | Finish():
                    return decision

    @property
    def joined(self) -> bool:
        return self.failures.joined

    # ---- joining -----------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        joined = await self.joining.join()
        if joined is None:
            log.info("the job is complete already: nothing to do")
            self._decide(Finish())
            return
        self._node.join(joined, self._settings, self._lose_lease)
        self._node.connected_peers = self.gang.connected_peers
        self._has_joined.set_result(None)
        self.failures.join(self._node.rank, self._node.name, self.attempt.number)
        await self.joining.end_discovery()

    async def _stage(self) -> None:
        if self._config.is_elastic:
            await self._stage_share()
        elif not self._node.staged.is_set():
            self._node.staged_all(await self.joining.stage(partial(self._node.record, "staging_begun")))
        self.gang.report_staged()

    async def _stage_share(self) -> None:
        """Copy the shards that this member of an elastic job has in this gang, unless it has copied them before."""
        node = self._node
        node.staged.clear()
        await asyncio.shield(self._has_joined)
        assert node.rank is not None
        each = self._config.trainers_per_node
        share = await self.joining.with_shards(Share(node.rank * each, node.shape.trainers * each))
        if share == node.share:
            node.staged.set()
            return
        node.share = None  # until all is copied, the work directory may have parts of two shares
        node.record("staging_begun")
        copied = await self.joining.stage_share(share)
        node.share = share
        node.staged_all(copied)

    def _grow_later(self) -> None:
        """On the hub: begin to wait for the next saved pass, after which the members that wait can join."""
        self._node.record_newcomers(self.gang.newcomers())
        if self._growing is None or self._growing.done():
            log.info("a new member waits: it joins when the running pass is saved")
            self._growing = self._steps.begin(CauseKind.LAUNCHER, self._grow)

    async def _grow(self) -> None:
        await asyncio.shield(self._has_joined)
        generations = self._node.generations
        assert generations is not None
        saved = asyncio.ensure_future(generations.pass_saved(lambda: self.gang.newcomers() > 0))
        try:
            while not (self._could_agree or saved.done()):
                await asyncio.wait([saved], timeout=_GROW_LOOK)
            if self._could_agree and await self.gang.resize_at_step(self._growth()):
                log.info("all trainers save and end after the same step (launcher.train.should_stop)")
                return
            if await saved:
                self.gang.resize(self._growth())
        finally:
            saved.cancel()

    @property
    def _could_agree(self) -> bool:
        return self.attempt.counts_steps and self.gang.newcomers() > 0

    def _growth(self) -> str:
        count = self._node.shape.trainers
        more = min(count + self.gang.newcomers(), self._config.shape.trainers)
        return f"the job grows from {count} to {more} trainers"

    # ---- failures ----------------------------------------------------------------------------------------------------

    def _step_failed(self, step: CauseKind, failure: Failure) -> None:
        cause = self._node.cause(step, failure.message, failure.code)
        if self.joined or step is CauseKind.STAGING:
            self._fail(cause, time.monotonic())
        else:
            self._decide(Stop(self.failures.first or cause))

    def _fail(self, cause: Cause, died_at: float) -> None:
        self.failures.report(cause, died_at, self.attempt.number)

    def _lose_lease(self, cause: Cause) -> None:
        if self.joined:
            self._fail(cause, time.monotonic())

    def _request_stop(self) -> None:
        """Report that this member got SIGTERM. Before the join, decide to stop at once, since no hub would answer."""
        self._node.record("stop_requested")
        self.attempt.start_no_more()
        self.attempt.handle_waiting()  # events from before the signal come first: the training may be complete
        cause = self._node.cause(CauseKind.STOPPED, "got SIGTERM", Exit.STOPPED)
        self.gang.report_failed(cause, time.monotonic())
        if not self.joined:
            self._decide(Stop(self._after or cause))

    def _kill(self) -> None:
        ending = [attempt for attempt, end in self._ending.items() if not end.done()]
        for attempt in {*ending, self.attempt}:
            attempt.supervisor.kill()

    # ---- decisions of the hub ----------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case Begin():
                self.attempt.begun.set_result(event)
            case Lead():
                self.attempt.may_lead.set_result(None)
            case Train(stall_timeout):
                self.attempt.may_train.set_result(stall_timeout)
            case Hold():
                self.gang.report_reached(self.attempt.number, self.attempt.hold())
            case Until(step):
                self._node.agreed_step = step or None
                self.attempt.continue_until(step)
            case Collect():
                self.attempt.answer(event)
            case Restart() | Stop() | Finish() | HubLost():
                self._decide(event)

    def _decide(self, decision: Decision) -> None:
        """Pass a decision to `run`. Drop all later events of this attempt."""
        self.attempt.close()
        self._decisions.put_nowait(decision)

    def _judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        if cause.kind is CauseKind.STALLED and self.attempt.begun.done():
            cause = stall.with_place(cause, self._config, self.attempt.begun.result().start.generation)
        generations = self._node.generations if self._has_joined.done() else None
        return generations.judge(cause) if generations else (cause, Verdict.STOP)

    async def _prepare(self, cause: Cause | None) -> Start:
        await asyncio.shield(self._has_joined)  # cancelling this wait must not cancel the future
        generations, roster = self._node.generations, self._node.roster
        assert generations is not None
        assert roster is not None
        return await generations.prepare(cause, roster)

    # ---- the next attempt --------------------------------------------------------------------------------------------

    def _restart(self, number: int, cause: Cause) -> asyncio.Task[None]:
        """End the processes of this attempt, then run the next attempt."""
        self._node.end_generation(cause)
        is_known = cause.rank == self._node.rank and brief(cause.what) == cause.what  # this rank has logged all of it
        first = "this rank failed first" if is_known else describe_cause(cause, self._node.shape)
        log.info(f"{first}: all processes of the job are restarted")
        self._node.enter("restarting")
        self.attempt.place_early_logs()
        ending = self._end_attempt(FAILURE_GRACE)
        self.attempt = self._new_attempt(number)
        return self._steps.begin(CauseKind.LAUNCHER, partial(self._run_after, ending))

    async def _run_after(self, ending: Awaitable[Sequence[Process]]) -> None:
        """Run the current attempt after `ending`. The hub begins it when all members have reported `ended`."""
        if left := await ending:
            self._fail(deaths.blocked(left, self._node.rank, self._node.name), time.monotonic())
            return
        self.gang.report_ended(self.attempt.number)
        await self.attempt.run(self._has_joined)

    def _new_attempt(self, number: int) -> Attempt:
        attempt = Attempt(
            number, self._config, self._command, self._node, self.gang, self._fail, self._guardian, self._factories
        )
        if self._signals.stop_requested.done():
            attempt.start_no_more()
        return attempt

    def _end_attempt(self, grace: float) -> asyncio.Task[Sequence[Process]]:
        """Start to end this attempt. Return a task: it waits until all attempts have ended, see `_all_left`."""
        self._ending = {attempt: task for attempt, task in self._ending.items() if not task.done()}
        self._ending[self.attempt] = asyncio.ensure_future(self.attempt.end(grace, FLUSH_WITHIN))
        return asyncio.ensure_future(_all_left(list(self._ending.values())))

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def _may_rejoin(self, cause: Cause) -> bool:
        """Return whether this member joins a new gang. False after SIGTERM, or if its own failure forbids a restart."""
        return not self._signals.stop_requested.done() and (cause.rank != self._node.rank or cause.kind.restartable)

    async def _without_hub(self, cause: Cause) -> Stop | Finish | Rejoin:
        """End a session that lost its hub after training. The mark of completion shows whether the job is complete."""
        if await self._node.is_complete():
            return Finish()
        if self._signals.stop_requested.done() or not self._config.rejoins:
            return Stop(cause)
        return await self._leave(cause)

    async def _leave(self, cause: Cause) -> Stop | Rejoin:
        """End the processes and leave the gang, to form a new gang with the pod that replaces the lost member."""
        self._after = cause
        self._node.enter("gathering")
        self.failures.leave()
        self.attempt.place_early_logs()
        ending = self._end_attempt(self._config.stop_grace if cause.kind is CauseKind.STOPPED else FAILURE_GRACE)
        explained = await self._signals.unless_stopped(self._leave_gang(cause, ending))
        if explained is None:
            return Stop(cause)
        if left := ending.result():
            return Stop(deaths.blocked(left, self._node.rank, self._node.name))
        cause = explained
        self._node.end_generation(cause)
        log.info(f"{describe_cause(cause, self._node.shape)}: all processes of the job have ended; {self._next(cause)}")
        if self._node.generations:
            self._node.generations.explain(cause)
        return Rejoin(cause)

    def _next(self, cause: Cause) -> str:
        """Return what this member does after it has left its gang because of `cause`."""
        if cause.kind is CauseKind.RESIZED:
            return "joining the larger gang"
        patience = f"waiting up to {self._config.restarts.rejoin_timeout:g} s (LAUNCHER_REJOIN_TIMEOUT)"
        if self._config.is_elastic and (cause.kind is CauseKind.STOPPED or self._config.restarts.shrink == "now"):
            return f"the other members continue without it; {patience} for enough members"
        return f"{patience} for a replacement pod"

    async def _leave_gang(self, cause: Cause, ending: asyncio.Task[Sequence[Process]]) -> Cause:
        """End the processes and close the gang. Return the cause, with what Kubernetes knows about the lost pod."""
        explained, *_ = await asyncio.gather(self.explained(cause), self._end_gang(cause, ending), self._end_join())
        if explained.kind is CauseKind.LOST or explained != cause:
            await self.attempt.explain_end(explained)
        return explained

    async def _end_gang(self, cause: Cause, ending: asyncio.Task[Sequence[Process]]) -> None:
        """Close the gang when no process of any member runs. After that, the next gang may start its processes."""
        await asyncio.shield(ending)
        self.gang.report_stopped()
        await self.gang.wait_finished()
        self._node.returning = self.gang.returning(cause, without_lost=self._config.restarts.shrink == "now")
        hub_died = cause.rank == 0 or (self.gang.hub_died and cause.kind is CauseKind.LOST and not cause.silent)
        if self._node.rank == 0 or hub_died:
            await self._node.release_folder(self.gang.remaining_run_time())
        await self.gang.close()

    async def end_children(self, grace: float) -> None:
        """End all child processes: those of this attempt, of earlier attempts and of the join."""
        await asyncio.gather(self._end_join(), self.attempt.supervisor.end(grace), *self._ending.values())

    async def _end_join(self) -> None:
        self._steps.cancel()
        await self.joining.end()

    async def explained(self, cause: Cause) -> Cause:
        """Return the cause, with what Kubernetes knows about a member that is gone. Only one member asks Kubernetes."""
        if not cause.kind.gone or not outcome.stands_for(cause, self._node.rank) or self._signals.stop_requested.done():
            return cause
        answer = await self._signals.unless_stopped(self.joining.ask_about(cause.pod))
        if not answer:
            return cause
        if cause.rank is not None:
            self._node.record_peer("pod_ended", cause.rank, cause.pod, answer)
        return replace(cause, what=f"{cause.what}; Kubernetes says: {answer}")


async def _all_left(ends: Sequence[asyncio.Task[Sequence[Process]]]) -> Sequence[Process]:
    """Wait until all these tasks have ended their attempts. Return the processes that could not be ended.

    If the caller cancels this wait, the tasks continue.
    """
    return [process for end in ends for process in await asyncio.shield(end)]


def _settings(config: JobConfig, node: Node, after: Cause | None) -> GangSettings:
    return GangSettings(
        config.members,
        config.gang.port,
        (config.pod_ip,) if config.pod_ip else None,
        silence=config.gang.silence,
        stall=config.gang.stall_timeout,
        pservers=config.shape.pservers,
        heters=config.shape.heters,
        grace=config.stop_grace,
        rejoins=config.rejoins,
        tls_folder=config.gang.tls_folder,
        elastic=_elastic(config, node, after) if config.is_elastic else None,
    )


def _elastic(config: JobConfig, node: Node, after: Cause | None) -> Elastic:
    """Return when the gang may begin. After another gang, it waits for the members that should come back.

    after: why the other gang has ended
    """
    ranks = {member.uid: rank for rank, member in enumerate(node.roster.members) if member.uid} if node.roster else {}
    waits = after is not None and not after.kind.planned and config.restarts.shrink == "wait"
    settle = config.restarts.rejoin_timeout if waits else config.restarts.settle
    return Elastic(config.least, settle, node.returning, ranks)
