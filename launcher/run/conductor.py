"""What a launcher does from its first moment to its outcome: a queue of events, a loop that decides what follows."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from launcher import paddle
from launcher.base.aio import wait_within
from launcher.base.clock import utc_now
from launcher.base.spawn import reap_orphans
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.gang import Begin, CollectEvidence, Finish, HubLost, Lead, Restart, Stop, Train
from launcher.model import Cause, CauseKind, Outcome, Process, Start, describe_cause
from launcher.processes.guardian import Guardian
from launcher.processes.supervisor import Died, PassDone, Serving
from launcher.run import backoff_limit, deaths, outcome, shutdown, stall
from launcher.run.attempt import Attempt, TimerDue
from launcher.run.event_source import EventSource
from launcher.run.factories import REAL, Factories
from launcher.run.join import JobComplete, Joined, Staged, StepFailed
from launcher.run.node import Node
from launcher.run.session import AttemptEnded, Session, SessionEnded

log = logging.getLogger(__name__)

_FAILURE_GRACE = 1.0  # after a failure there is nothing left to save
_FINISHED_EARLY = 5.0  # between the end of a server and the word that all have trained
_HOLD = 30.0  # how long a failure before the join waits for a gang that it can be told to
_LEAVE_WITHIN = 1.5  # for the hub's word that the member at fault has left


class StopRequested:
    """A signal says stop."""


@dataclass(frozen=True)
class LeaseLost:
    """Another gang may train into the folder by now, or does."""

    cause: Cause


class HoldExpired:
    """No gang came to be told of a failure."""


class Conductor:
    """Knows how far this member is, and decides."""

    def __init__(
        self,
        config: JobConfig,
        flags: Sequence[str],
        command: Sequence[str],
        guardian: Guardian | None,
        factories: Factories = REAL,
    ) -> None:
        self._config = config
        self._command = command
        self._guardian = guardian
        self._factories = factories
        self._queue: asyncio.Queue[tuple[EventSource, object]] = asyncio.Queue()
        self._events = EventSource(self._queue)  # for what concerns all gangs and turns
        self._node = Node(config, flags, command, lambda cause: self._events(LeaseLost(cause)))
        self._held: tuple[Cause, float] | None = None
        self._gathers_after: Cause | None = None  # why the gang before this one is over
        self._because: Cause | None = None  # why the generation before this one is, as far as this pod saw it
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told_at = 0.0
        self._hurried: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # told to stop a second time
        self._session = self._new_session(rejoin=False)

    def _new_session(self, *, rejoin: bool) -> Session:
        return Session(self._config, self._node, self._queue, self._guardian, self.told, self._factories, rejoin=rejoin)

    @property
    def _turn(self) -> Attempt:
        return self._session.turn

    async def conduct(self) -> Outcome:
        """Until the job is over for this member."""
        self._turn.order.serve_early(self._node.first_plan)
        self._session.joining.begin()
        while True:
            match await self._next():
                case Joined() as joined:
                    self._joined(joined)
                case Staged():
                    self._node.staged = True
                    self._session.gang.report_staged()
                    self._try_order(self._turn.order.staged)
                case Begin() as begin:
                    self._session.begun = begin
                    self._begin_if_joined()
                case Lead():
                    self._try_order(self._turn.order.lead)
                case Train(stall):
                    self._train(stall)
                case CollectEvidence():
                    self._collect()
                case Serving():
                    self._turn.order.served()
                case PassDone(number):
                    self._passed(number)
                case Died() as death:
                    self._died(death)
                case TimerDue(call):
                    call()
                case Restart(turn, cause):
                    self._restart(turn, cause)
                case AttemptEnded(left):
                    self._turn_ended(left)
                case LeaseLost(cause) if self._session.joined:
                    self._fail(cause, time.monotonic())
                case StepFailed(step, failure):
                    if over := self._broken(step, failure):
                        return await self._stop(over)
                case StopRequested():
                    if over := self._told_to_stop():
                        return await self._stop(over)
                case HoldExpired() if self._held and not self._session.joined:
                    return await self._stop(self._held[0])
                case Stop(cause, True) if not self.told.done() and (
                    cause.rank != self._node.rank or cause.kind.restartable
                ):
                    self._scatter(cause)
                case SessionEnded(cause, processes):
                    if over := self._gather_again(cause, processes):
                        return await self._stop(over)
                case Stop(cause):
                    return await self._stop(cause)
                case HubLost(cause):
                    if await self._node.is_complete():
                        return await self._finish()
                    if self.told.done() or not self._config.rejoins:
                        return await self._stop(cause)
                    self._scatter(cause)
                case Finish():
                    return await self._finish()
                case JobComplete():
                    log.info("the job is complete already: nothing to do")
                    return await self._finish()

    async def _next(self) -> object:
        while True:
            events, event = await self._queue.get()
            if not events.closed:
                return event

    # ---- what happens, and what follows --------------------------------------------------------------------------

    def _joined(self, joined: Joined) -> None:
        self._session.join(joined)
        self._node.enter("starting")
        self._session.joining.stage(joined.rank)
        if self._held:
            (cause, died_at), self._held = self._held, None
            turn = self._turn.number if cause.kind.is_child else None
            self._session.gang.report_failed(replace(cause, rank=self._node.rank, pod=self._node.name), died_at, turn)
        self._begin_if_joined()

    def _begin_if_joined(self) -> None:
        """The hub's word may come before this member knows that it has joined."""
        if self._session.begun is None or self._node.journal is None or not self._session.joined:
            return
        start = self._session.begun.start
        self._turn.supervisor.set_log_folder(self._node.journal.folder, self._mark(start))
        self._node.journal.begin(start)
        make_plan = partial(self._node.plan, start)
        self._try_order(partial(self._turn.order.begin, make_plan))
        if self._session.begun.attempt == 0:
            for change in paddle.overridden_variables(self._config, self._turn.order.plan or self._node.first_plan):
                log.warning(change)

    def _mark(self, start: Start) -> str:
        """The line that parts this generation's logs from those before it."""
        after = "" if start.resume is None else f", after pass {start.resume}"
        because = describe_cause(self._because, self._config.shape) if self._because else ""
        told = f", because {' '.join(because.split())}" if because else ""
        return f"generation {start.generation}, pod {self._node.name}{after}{told}"

    def _try_order(self, go_on: Callable[[], None]) -> None:
        """A plan can turn out to be wrong only when the roster is known."""
        try:
            go_on()
        except Failure as failure:
            self._turn.order.close()
            self._session.events(StepFailed(CauseKind.PLAN, failure))

    def _train(self, stall: float) -> None:
        log.info("every server serves and everything is copied: training")
        self._turn.watchdog.train(stall)
        self._node.enter("training" if self._node.first_plan.trainers else "serving")
        self._try_order(self._turn.order.train)

    def _collect(self) -> None:
        if not (self._session.begun and self._node.journal and self._node.roster and self._session.joined):
            return  # early servers are all there is here yet, since the volume does not answer
        log.info("no trainer has printed anything for too long (LAUNCHER_STALL_TIMEOUT): looking what all processes do")
        generation = self._session.begun.start.generation
        name = self._config.shape.name(self._node.rank or 0)
        self._turn.watchdog.collect(
            self._turn.supervisor.subjects(),
            stall.names(self._node.roster, self._config.shape),
            os.path.join(self._node.journal.folder, stall.file_name(generation)),
            f"{name} (pod {self._node.name}), generation {generation}, {utc_now()}",
            show=not self._config.job_folder,
        )

    def _passed(self, number: int) -> None:
        if self._node.journal:
            self._node.journal.passed(number)
        if self._session.generations.done():
            self._session.generations.result().passed()

    def _died(self, death: Died) -> None:
        if death.process.role == "trainer" and death.code == 0:
            self._turn.order.trainer_done()
            if self._turn.order.done:
                self._node.enter("trained")
        elif death.process.may_finish and death.code == 0:
            self._turn.later(_FINISHED_EARLY, lambda: self._fail_by(death))
        else:
            self._fail_by(death)

    def _fail_by(self, death: Died) -> None:
        if not death.process.echo:
            for line in death.tail:  # else only whoever reads the volume would see why
                log.info(f"{death.process.role}: {line}")
        mode = paddle.mode(self._config, self._command)
        self._fail(deaths.cause(death, mode, self._node.rank, self._node.name), death.at)

    def _broken(self, step: CauseKind, failure: Failure) -> Cause | None:
        """The cause, where it ends this member at once; None where a gang is told first."""
        cause = self._node.cause(step, failure.message, failure.code)
        if self._session.joined or step is CauseKind.STAGING:
            self._fail(cause, time.monotonic())
            return None
        return self._held[0] if self._held else cause

    def _told_to_stop(self) -> Cause | None:
        self._turn.order.close()
        cause = self._node.cause(CauseKind.STOPPED, "was told to stop (SIGTERM)", Exit.STOPPED)
        self._session.gang.report_failed(cause, time.monotonic())
        if self._session.joined:
            return None
        return self._gathers_after or cause  # nobody may know this member yet, and nobody will answer

    def _fail(self, cause: Cause, died_at: float) -> None:
        """Tell the gang; before there is one, hold the cause until there is, so that it is told once for all."""
        log.info(cause.what)
        if self._session.joined:
            self._session.gang.report_failed(cause, died_at, self._turn.number if cause.kind.restartable else None)
        elif self._held is None:
            self._held = (cause, died_at)
            log.info(f"waiting up to {_HOLD:g} s for the gang, to tell it")
            self._events.later(_HOLD, HoldExpired())

    # ---- turns ---------------------------------------------------------------------------------------------------

    def _restart(self, turn: int, cause: Cause) -> None:
        """End what runs here. The hub says begin once nothing runs anywhere."""
        self._because = cause
        log.info(f"{describe_cause(cause, self._config.shape)}: all processes of the job end, to start again")
        self._node.enter("restarting")
        self._session.restart(turn, _FAILURE_GRACE)

    def _turn_ended(self, left: Sequence[Process]) -> None:
        if left:
            self._fail(self._held_by_the_kernel(left), time.monotonic())
        else:
            self._session.gang.report_ended(self._turn.number)

    def _held_by_the_kernel(self, left: Sequence[Process]) -> Cause:
        roles_left = ", ".join(process.role for process in left)
        what = f"what ran before does not end even by SIGKILL ({roles_left}): nothing can be started again here"
        return self._node.cause(CauseKind.LAUNCHER, what, Exit.IO_FAILED)

    # ---- gathering again -----------------------------------------------------------------------------------------

    def _scatter(self, cause: Cause) -> None:
        """A member is gone, and another pod may come in its place: this one ends its children and joins anew."""
        self._gathers_after = cause
        self._node.enter("gathering")
        grace = self._config.stop_grace if cause.kind is CauseKind.STOPPED else _FAILURE_GRACE
        self._session.leave(cause, grace, self._events)

    def _gather_again(self, cause: Cause, left: Sequence[Process]) -> Cause | None:
        """The cause, where it ends this member instead."""
        if left:
            return self._held_by_the_kernel(left)
        self._because = cause
        log.info(
            f"{describe_cause(cause, self._config.shape)}: all processes of the job have ended; waiting up to "
            f"{self._config.restarts.rejoin_timeout:g} s (LAUNCHER_REJOIN_TIMEOUT) for who takes its place"
        )
        if self._node.generations is not None:
            self._node.generations.explain(cause)
        self._session = self._new_session(rejoin=True)
        self._session.joining.begin()
        return None

    # ---- the end -------------------------------------------------------------------------------------------------

    async def _finish(self) -> Outcome:
        """All have trained: servers have nobody left to serve."""
        self._turn.order.close()
        self._node.enter("finishing")
        await self._session.end_children(self._config.stop_grace)
        self._session.gang.report_stopped()
        return outcome.outcome_of(None, self._node.rank, told_to_stop=self.told.done(), shape=self._config.shape)

    async def _stop(self, cause: Cause) -> Outcome:
        """The job is over, not complete. The member at fault leaves first, since Kubernetes blames who fails first."""
        self._turn.order.close()
        self._node.enter("ending")
        orderly = cause.kind is CauseKind.STOPPED or self.told.done()
        ending = self._session.end_children(self._config.stop_grace if orderly else _FAILURE_GRACE)
        cause, _ = await asyncio.gather(self._session.explained(cause), ending)
        self._session.gang.report_stopped()
        if self._session.joined and cause.rank != self._node.rank:
            await self._until_finish()
        if not outcome.is_blamed(cause, self._node.rank):
            await self._until_others_end()
        return outcome.outcome_of(
            cause,
            self._node.rank,
            told_to_stop=self.told.done(),
            shape=self._config.shape,
            alone=backoff_limit.other_role_is_over(self._config, cause),
        )

    async def _until_finish(self) -> None:
        async def finish() -> None:
            while not isinstance(await self._next(), Finish):
                pass

        try:
            await wait_within(finish(), _LEAVE_WITHIN)
        except asyncio.TimeoutError:
            pass  # nobody waits for another's end, only for its word

    async def _until_others_end(self) -> None:
        """The hub knows it, and who comes next need not wait for any of them. Told to stop it has the same grace."""
        left = self._told_at + self._config.stop_grace - time.monotonic() if self.told.done() else _LEAVE_WITHIN
        others: asyncio.Future[None] = asyncio.ensure_future(self._session.gang.wait_others_ended())
        await asyncio.wait([others, self._hurried], timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
        others.cancel()

    async def leave(self, result: Outcome) -> None:
        """Tell everybody, and write down what is still to be written."""
        held = self._held[0] if self._held else None
        await shutdown.leave(result, self._config, self._node, self._session, held)

    # ---- signals -------------------------------------------------------------------------------------------------

    def watch_signals(self, received: Sequence[int]) -> None:
        """From now on signals are heard here; those that came before count as well."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        for _ in list(received):
            self._on_signal()

    def _on_signal(self) -> None:
        """The first asks for an orderly end, the second for an end at once."""
        if not self.told.done():
            self.told.set_result(None)
            self._told_at = time.monotonic()
            self._events(StopRequested())
        else:
            if not self._hurried.done():
                self._hurried.set_result(None)
            self._turn.supervisor.kill()
