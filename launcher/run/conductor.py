"""The loop of a launcher, from its start to its outcome: takes events from a queue, and decides what follows."""

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

_FAILURE_GRACE = 1.0  # seconds for processes to end after a failure, since they have nothing to save
_FINISHED_EARLY = 5.0  # seconds from the end of a server until all members must have finished training
_HOLD = 30.0  # seconds for which a failure before the join is held, to report it to the gang
_LEAVE_WITHIN = 1.5  # seconds for the hub to say that the member at fault has left


class StopRequested:
    """A signal asks this launcher to stop."""


@dataclass(frozen=True)
class LeaseLost:
    """The hub has lost its lease: another gang may train into the folder."""

    cause: Cause


class HoldExpired:
    """A failure before the join was held for long enough."""


class Conductor:
    """Decide what this member does. `conduct` returns its outcome, `leave` reports it."""

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
        self._events = EventSource(self._queue)  # for events that belong to no single session
        self._node = Node(config, flags, command, lambda cause: self._events(LeaseLost(cause)))
        self._held: list[tuple[Cause, float]] = []  # failures before the join, and when each happened
        self._rejoins_after: Cause | None = None  # why the session before this one ended
        self._last_cause: Cause | None = None  # why the generation before this one ended, if this pod saw it
        self.stop_requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop_requested_at = 0.0
        self._kill_requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # by a second signal
        self._session = self._new_session(rejoin=False)

    def _new_session(self, *, rejoin: bool) -> Session:
        return Session(
            self._config, self._node, self._queue, self._guardian, self.stop_requested, self._factories, rejoin=rejoin
        )

    @property
    def _attempt(self) -> Attempt:
        return self._session.attempt

    async def conduct(self) -> Outcome:
        """Run until the job is over for this member. Return the outcome of this member."""
        self._attempt.order.serve_early(self._node.first_plan)
        self._session.joining.begin()
        while True:
            match await self._next():
                case Joined() as joined:
                    self._joined(joined)
                case Staged():
                    self._node.staged = True
                    self._session.gang.report_staged()
                    self._advance(self._attempt.order.staged)
                case Begin() as begin:
                    self._session.begun = begin
                    self._begin_if_joined()
                case Lead():
                    self._advance(self._attempt.order.lead)
                case Train(stall):
                    self._train(stall)
                case CollectEvidence():
                    self._collect()
                case Serving():
                    self._attempt.order.served()
                case PassDone(number):
                    self._passed(number)
                case Died() as death:
                    self._died(death)
                case TimerDue(call):
                    call()
                case Restart(turn, cause):
                    self._restart(turn, cause)
                case AttemptEnded(left):
                    self._attempt_ended(left)
                case LeaseLost(cause) if self._session.joined:
                    self._fail(cause, time.monotonic())
                case StepFailed(step, failure):
                    if over := self._step_failed(step, failure):
                        return await self._stop(over)
                case StopRequested():
                    if over := self._request_stop():
                        return await self._stop(over)
                case HoldExpired() if self._held and not self._session.joined:
                    return await self._stop(self._held[0][0])
                case Stop(cause, True) if not self.stop_requested.done() and (
                    cause.rank != self._node.rank or cause.kind.restartable
                ):
                    self._leave_session(cause)
                case SessionEnded(cause, processes):
                    if over := self._rejoin(cause, processes):
                        return await self._stop(over)
                case Stop(cause):
                    return await self._stop(cause)
                case HubLost(cause):
                    if await self._node.is_complete():
                        return await self._finish()
                    if self.stop_requested.done() or not self._config.rejoins:
                        return await self._stop(cause)
                    self._leave_session(cause)
                case Finish():
                    return await self._finish()
                case JobComplete():
                    log.info("the job is complete already: nothing to do")
                    return await self._finish()

    async def _next(self) -> object:
        while True:
            events, event = await self._queue.get()
            if not events.is_closed:
                return event

    # ---- what happens, and what follows ------------------------------------------------------------------------------

    def _joined(self, joined: Joined) -> None:
        self._session.join(joined)
        self._node.enter("starting")
        self._session.joining.stage(joined.rank)
        for cause, died_at in self._held:
            number = self._attempt.number if cause.kind.is_child else None
            self._session.gang.report_failed(replace(cause, rank=self._node.rank, pod=self._node.name), died_at, number)
        self._held.clear()
        self._begin_if_joined()

    def _begin_if_joined(self) -> None:
        """Begin the generation if this member has joined and Begin has arrived. Either of the two may come first."""
        if self._session.begun is None or self._node.journal is None or not self._session.joined:
            return
        start = self._session.begun.start
        self._attempt.supervisor.set_log_folder(self._node.journal.folder, self._mark(start))
        self._node.journal.begin(start)
        make_plan = partial(self._node.plan, start)
        self._advance(partial(self._attempt.order.begin, make_plan))
        if self._session.begun.attempt == 0:
            for change in paddle.overridden_variables(self._config, self._attempt.order.plan or self._node.first_plan):
                log.warning(change)

    def _mark(self, start: Start) -> str:
        """Return the line that separates the logs of this generation from the logs of earlier generations."""
        after = "" if start.resume is None else f", after pass {start.resume}"
        cause = describe_cause(self._last_cause, self._config.shape) if self._last_cause else ""
        because = f", because {' '.join(cause.split())}" if cause else ""
        return f"generation {start.generation}, pod {self._node.name}{after}{because}"

    def _advance(self, step: Callable[[], None]) -> None:
        """Take a step of the start order. The step fails if no plan can be made from the roster."""
        try:
            step()
        except Failure as failure:
            self._attempt.order.close()
            self._session.events(StepFailed(CauseKind.PLAN, failure))

    def _train(self, stall: float) -> None:
        log.info("all servers listen, and all files are copied: training starts")
        self._attempt.watchdog.train(stall)
        self._node.enter("training" if self._node.first_plan.trainers else "serving")
        self._advance(self._attempt.order.train)

    def _collect(self) -> None:
        if not (self._session.begun and self._node.journal and self._node.roster and self._session.joined):
            return  # only servers that need no roster run: the volume does not answer yet
        log.info(
            "no trainer has printed anything for too long (LAUNCHER_STALL_TIMEOUT): collecting evidence of the stall"
        )
        generation = self._session.begun.start.generation
        name = self._config.shape.name(self._node.rank or 0)
        self._attempt.watchdog.collect(
            self._attempt.supervisor.subjects(),
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
            self._attempt.order.trainer_done()
            if self._attempt.order.all_trained:
                self._node.enter("trained")
        elif death.process.may_finish and death.code == 0:
            self._attempt.later(_FINISHED_EARLY, lambda: self._fail_by(death))
        else:
            self._fail_by(death)

    def _fail_by(self, death: Died) -> None:
        if not death.process.echo:
            for line in death.tail:  # otherwise only the files on the volume would show why it died
                log.info(f"{death.process.role}: {line}")
        mode = paddle.mode(self._config, self._command)
        self._fail(deaths.cause(death, mode, self._node.rank, self._node.name), death.at)

    def _step_failed(self, step: CauseKind, failure: Failure) -> Cause | None:
        """Return the cause if the failure ends this member at once, or None if it is reported to the gang first."""
        cause = self._node.cause(step, failure.message, failure.code)
        if self._session.joined or step is CauseKind.STAGING:
            self._fail(cause, time.monotonic())
            return None
        return self._held[0][0] if self._held else cause

    def _request_stop(self) -> Cause | None:
        self._attempt.order.close()
        cause = self._node.cause(CauseKind.STOPPED, "got SIGTERM", Exit.STOPPED)
        self._session.gang.report_failed(cause, time.monotonic())
        if self._session.joined:
            return None
        return self._rejoins_after or cause  # without a gang there is no answer to wait for

    def _fail(self, cause: Cause, died_at: float) -> None:
        """Report a failure to the gang. Before the join, hold each failure, so that all members learn of it later.

        A later one counts, too: a restart repairs the death of a server, but not a copy that failed.
        """
        log.info(cause.what)
        if self._session.joined:
            self._session.gang.report_failed(cause, died_at, self._attempt.number if cause.kind.restartable else None)
            return
        if not self._held:
            log.info(f"waiting up to {_HOLD:g} s for the gang, to report this failure")
            self._events.later(_HOLD, HoldExpired())
        self._held.append((cause, died_at))

    # ---- attempts ----------------------------------------------------------------------------------------------------

    def _restart(self, attempt: int, cause: Cause) -> None:
        """End the processes of this attempt. The hub begins the next attempt when no process runs on any member."""
        self._last_cause = cause
        log.info(f"{describe_cause(cause, self._config.shape)}: all processes of the job are restarted")
        self._node.enter("restarting")
        self._session.restart(attempt, _FAILURE_GRACE)

    def _attempt_ended(self, left: Sequence[Process]) -> None:
        if left:
            self._fail(self._held_by_the_kernel(left), time.monotonic())
        else:
            self._session.gang.report_ended(self._attempt.number)

    def _held_by_the_kernel(self, left: Sequence[Process]) -> Cause:
        roles_left = ", ".join(process.role for process in left)
        what = (
            f"processes did not end after SIGKILL ({roles_left}): they are blocked in the kernel; this pod cannot "
            "start processes again"
        )
        return self._node.cause(CauseKind.LAUNCHER, what, Exit.IO_FAILED)

    # ---- joining again -----------------------------------------------------------------------------------------------

    def _leave_session(self, cause: Cause) -> None:
        """Leave the gang, to form a new gang with the pod that replaces the lost member."""
        self._rejoins_after = cause
        self._node.enter("gathering")
        grace = self._config.stop_grace if cause.kind is CauseKind.STOPPED else _FAILURE_GRACE
        self._session.leave(cause, grace, self._events)

    def _rejoin(self, cause: Cause, left: Sequence[Process]) -> Cause | None:
        """Join a new gang. If this member must end instead, return the cause."""
        if left:
            return self._held_by_the_kernel(left)
        self._last_cause = cause
        log.info(
            f"{describe_cause(cause, self._config.shape)}: all processes of the job have ended; waiting up to "
            f"{self._config.restarts.rejoin_timeout:g} s (LAUNCHER_REJOIN_TIMEOUT) for a replacement pod"
        )
        if self._node.generations is not None:
            self._node.generations.explain(cause)
        self._session = self._new_session(rejoin=True)
        self._session.joining.begin()
        return None

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def _finish(self) -> Outcome:
        """End all processes, since all members have finished training. Return the outcome."""
        self._attempt.order.close()
        self._node.enter("finishing")
        await self._session.end_children(self._config.stop_grace)
        self._session.gang.report_stopped()
        return outcome.outcome_of(
            None, self._node.rank, told_to_stop=self.stop_requested.done(), shape=self._config.shape
        )

    async def _stop(self, cause: Cause) -> Outcome:
        """End this member of an incomplete job. Return the outcome.

        The member at fault leaves first, since Kubernetes blames the first pod that fails.
        """
        self._attempt.order.close()
        self._node.enter("ending")
        orderly = cause.kind is CauseKind.STOPPED or self.stop_requested.done()
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
            told_to_stop=self.stop_requested.done(),
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
            pass  # do not wait longer for the member at fault

    async def _until_others_end(self) -> None:
        """On the hub, wait until all members have ended, so that the hub can release its lease at once."""
        left = _LEAVE_WITHIN
        if self.stop_requested.done():
            left = self._stop_requested_at + self._config.stop_grace - time.monotonic()
        others: asyncio.Future[None] = asyncio.ensure_future(self._session.gang.wait_others_ended())
        await asyncio.wait([others, self._kill_requested], timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
        others.cancel()

    async def leave(self, result: Outcome) -> None:
        """Report the outcome, and write what is still to be written."""
        held = self._held[0][0] if self._held else None
        await shutdown.leave(result, self._config, self._node, self._session, held)

    # ---- signals -----------------------------------------------------------------------------------------------------

    def watch_signals(self, received: Sequence[int]) -> None:
        """Handle signals from now on. The signals that were `received` before this call count as well."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        for _ in list(received):
            self._on_signal()

    def _on_signal(self) -> None:
        """Stop in an orderly way at the first signal. Kill all processes at the second signal."""
        if not self.stop_requested.done():
            self.stop_requested.set_result(None)
            self._stop_requested_at = time.monotonic()
            self._events(StopRequested())
        else:
            if not self._kill_requested.done():
                self._kill_requested.set_result(None)
            self._attempt.supervisor.kill()
