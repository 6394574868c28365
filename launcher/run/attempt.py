"""Run one attempt: all processes of this member, from the start of the first process to the end of the last.

    serve     start the servers
    lead      on the hub: start the first trainer alone, if the other trainers must connect to it
    train     start all other trainers

Each step waits for a message of the hub, since only the hub knows when all members are ready. There is one exception:
in the first session, a v0 pserver starts before the join, since it needs no roster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launcher import paddle
from launcher.base import file_errors
from launcher.base.aio import run_in_thread
from launcher.base.clock import utc_now
from launcher.config import JobConfig
from launcher.errors import Failure
from launcher.gang import Begin, Collect, Gang
from launcher.model import Cause, CauseKind, MemberReport, Plan, Process, Start
from launcher.paddle.elastic import STEP_FILE
from launcher.processes.guardian import Guardian
from launcher.processes.step_file import StepFile
from launcher.processes.supervisor import Died, NumbersSeen, PassDone, Serving
from launcher.run import deaths, stall
from launcher.run.factories import Factories
from launcher.run.node import Node
from launcher.run.stall import EvidenceFile, Watchdog

log = logging.getLogger(__name__)

_LED_WITHIN = 15.0  # seconds for the first trainer to listen: before that, it must import Paddle and read its data
_FINISHED_EARLY = 5.0  # after a server has ended with code 0, all members must finish training in these seconds


@dataclass(frozen=True)
class TimerDue:
    """An event: the time for a delayed call has come."""

    call: Callable[[], None]


class Attempt:
    """One start of this member's processes.

    fail: called with the cause of a failure and its time (monotonic). The hub then decides what follows.
    """

    def __init__(
        self,
        number: int,
        config: JobConfig,
        command: Sequence[str],
        node: Node,
        gang: Gang,
        fail: Callable[[Cause, float], None],
        guardian: Guardian | None,
        factories: Factories,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        # The session sets these three futures when the messages of the hub arrive.
        self.begun: asyncio.Future[Begin] = loop.create_future()
        self.may_lead: asyncio.Future[None] = loop.create_future()
        self.may_train: asyncio.Future[float] = loop.create_future()
        self._config = config
        self._command = command
        self._node = node
        self._gang = gang
        self._fail = fail
        self._events: asyncio.Queue[object] = asyncio.Queue()
        self._watchdog = Watchdog(number, gang, lambda: self.supervisor.last_line(), self._trainers_of_v0)
        self.supervisor = factories.supervisor(
            self._events.put_nowait,
            secrets.token_hex(8),
            guardian,
            on_output=self._printed,
            find_numbers=paddle.NumberFinder,
            format_line=node.lines.of_processes,
        )
        node.log_traffic = lambda: self.supervisor.log_traffic()
        self._serves = self._leads = self._trains = False  # which of the steps have begun
        self._not_listening = 0  # how many processes with ports do not listen yet
        self._training = 0  # how many trainers have not ended
        self._step_files: list[StepFile] = []  # of the trainers of an elastic job
        self._starts_no_more = self._is_closed = False

    # ---- the order of starts -----------------------------------------------------------------------------------------

    def serve_early(self) -> None:
        """Start the servers if they need no roster. The caller may call this before this member has joined."""
        if self._node.first_plan.early:
            self._serve(self._node.first_plan)

    async def run(self, joined: asyncio.Future[None]) -> None:
        """Start the processes in their order, and handle what happens to them. Runs until the caller cancels it.

        joined: done once this member has joined the gang
        """
        await asyncio.gather(self._start_in_order(joined), self._handle_events())

    async def _start_in_order(self, joined: asyncio.Future[None]) -> None:
        begin = await asyncio.shield(self.begun)
        await asyncio.shield(joined)
        self._node.begin(begin.start, self.supervisor)
        try:
            if not self._node.first_plan.early:
                await self._node.staged.wait()
            plan = self._plan(begin.start)
            if not self._serves:
                self._serve(plan)
            await self._make_step_files(plan)
            if plan.leads:
                await asyncio.shield(self.may_lead)
                self._lead(plan)
            stall_timeout = await asyncio.shield(self.may_train)
            if plan.early:
                plan = self._node.plan(begin.start)  # the flags of a v0 trainer depend on the copied configuration
            self._train(plan, stall_timeout)
        except Failure as failure:
            self._fail(self._node.cause(CauseKind.PLAN, failure.message, failure.code), time.monotonic())

    async def _make_step_files(self, plan: Plan) -> None:
        """In an elastic job, make the files for `launcher.train.should_stop`. Raises Failure."""
        for trainer in plan.trainers:
            if path := trainer.env.get(STEP_FILE):
                try:
                    self._step_files.append(await run_in_thread(StepFile, path))
                except OSError as error:
                    raise file_errors.cannot_write(path, error) from None

    @property
    def counts_steps(self) -> bool:
        """Whether all trainers of this member have called `launcher.train.should_stop` in this attempt."""
        return bool(self._step_files) and all(file.step for file in self._step_files)

    def hold(self) -> int | None:
        """Let the trainers wait at their next step. Return the highest step, or None if not all count steps."""
        steps = [file.ask() for file in self._step_files]
        return max(steps) if steps and all(steps) else None

    def continue_until(self, step: int) -> None:
        """Let the trainers continue until they have done this step; 0: as long as they want."""
        for file in self._step_files:
            file.let_go(step)

    def _plan(self, start: Start) -> Plan:
        plan = self._node.plan(start)
        self._training = len(plan.trainers)
        if self.number == 0:
            for change in paddle.overridden_variables(self._config, plan):
                log.warning(change)
        return plan

    def _serve(self, plan: Plan) -> None:
        """Start the servers. Report `serving` when all servers listen, and the leading trainer too, if there is one."""
        self._serves = True
        self._not_listening = sum(bool(process.ports) for process in (*plan.servers, *plan.trainers))
        for server in plan.servers:
            self._start(server)
        if not self._not_listening:
            self._gang.report_serving(self.number)

    def _lead(self, plan: Plan) -> None:
        """Start the first trainer alone.

        The other trainers wait until this trainer listens. A trainer that starts earlier cannot connect, and retries
        only after 3 s.
        """
        log.info("all files are copied: the first trainer starts now; the other trainers start as soon as it listens")
        self._leads = True
        self._start(plan.trainers[0])
        self._later(_LED_WITHIN, lambda: self._stop_leading(f"does not listen within {_LED_WITHIN:g} s"))

    def _stop_leading(self, why: str) -> None:
        """Report `serving`, although the first trainer does not listen. Some training programs never listen."""
        if self._not_listening:
            log.info(f"the first trainer {why}: the other trainers start now")
            self._not_listening = 0
            self._gang.report_serving(self.number)

    def _train(self, plan: Plan, stall_timeout: float) -> None:
        """Start all trainers that do not run yet."""
        log.info("all servers listen, and all files are copied: training starts")
        self._watchdog.train(stall_timeout)
        self._node.enter("training" if self._node.first_plan.trainers else "serving")
        self._trains = True
        for trainer in plan.trainers[1 if self._leads else 0 :]:
            self._start(trainer)
        if not plan.trainers:
            self._gang.report_trained(self.number)  # this member has nothing to train

    def _start(self, process: Process) -> None:
        if not self._starts_no_more:
            self.supervisor.start(process)

    def _trainers_of_v0(self) -> Sequence[int]:
        is_v0 = paddle.mode(self._config, self._command) == "v0"
        return [each.pid for each in self.supervisor.subjects() if each.role == "trainer"] if is_v0 else ()

    # ---- what happens to the processes -------------------------------------------------------------------------------

    def _printed(self) -> None:
        """Record that a trainer has printed something. Any thread may call this."""
        self._node.output_at = time.monotonic()
        self._watchdog.printed()

    async def _handle_events(self) -> None:
        while not self._is_closed:
            self._handle(await self._events.get())

    def handle_waiting(self) -> None:
        """Handle all events that are in the queue now."""
        while not self._events.empty():
            self._handle(self._events.get_nowait())

    def _handle(self, event: object) -> None:
        if self._is_closed:
            return
        match event:
            case Serving():
                self._served()
            case PassDone(number):
                self._node.passed(number)
                self._watchdog.passed(number, is_last=self._node.is_last_pass(number))
            case NumbersSeen(numbers):
                self._node.saw(numbers)
            case Died() as death:
                self._died(death)
            case TimerDue(call):
                call()

    def _served(self) -> None:
        self._not_listening -= 1
        if not self._not_listening:
            self._gang.report_serving(self.number)

    def _died(self, death: Died) -> None:
        failed = death.code != 0
        self._node.record(
            "process_ended",
            process=death.process.role,
            exit_code=death.code,
            out_of_memory=death.out_of_memory or None,
            tail=paddle.hide_environment(death.tail) if failed else None,
        )
        if death.process.role == "trainer" and death.code == 0:
            self._trainer_done()
        elif death.process.may_finish and death.code == 0:
            self._later(_FINISHED_EARLY, lambda: self._fail_by(death))
        else:
            self._fail_by(death)

    def _trainer_done(self) -> None:
        if self._leads:
            self._stop_leading("has ended before it listened")
        self._training -= 1
        if not self._training:
            self._gang.report_trained(self.number)
        if self._trains and not self._training:
            self._node.enter("trained")

    def _fail_by(self, death: Died) -> None:
        if not death.process.echo:
            for line in death.tail:  # otherwise only the files on the volume would show why the process died
                log.info(f"{death.process.role}: {line}")
        mode = paddle.mode(self._config, self._command)
        self._fail(deaths.cause(death, mode, self._node.rank, self._node.name), death.at)

    def answer(self, collect: Collect) -> None:
        """Start to find out what all processes do. Report it to the hub."""
        node, file = self._node, None
        if self._is_closed:
            self._gang.report_collected(collect.survey, MemberReport(node.phase, 0, ()))
            return
        if collect.to_file:
            log.info("no trainer has printed anything for too long (LAUNCHER_STALL_TIMEOUT): collecting evidence")
            file = self._evidence_file()
        peers = stall.names(node.roster, node.shape) if node.roster else {}
        self._watchdog.answer(collect.survey, node.phase, self.supervisor.subjects(), peers, file)

    def _evidence_file(self) -> EvidenceFile | None:
        """Return the file of a stall, or None if the volume delays the end of this join: early servers run at most."""
        node = self._node
        if not self.begun.done() or node.journal is None:
            return None
        generation = self.begun.result().start.generation
        return EvidenceFile(
            os.path.join(node.journal.folder, stall.file_name(generation)),
            f"{node.shape.name(node.rank or 0)} (pod {node.name}), generation {generation}, {utc_now()}",
            is_shown=not self._config.job_folder,
        )

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, self._events.put_nowait, TimerDue(call))

    def place_early_logs(self) -> None:
        """If servers have started but no generation has begun, write the logs of the servers to the member's folder."""
        if self._node.journal and not self.begun.done():
            mark = f"pod {self._node.name}, before a generation began"
            self.supervisor.set_log_folder(self._node.journal.folder, mark)

    async def explain_end(self, cause: Cause) -> None:
        """Replace the recorded cause of this generation by `cause`, if this member reports in place of the hub."""
        if self.begun.done():
            await self._node.explain_end(self.begun.result().start.generation, cause)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def start_no_more(self) -> None:
        """Prevent all further starts of processes in this attempt."""
        self._starts_no_more = True

    def close(self) -> None:
        """Prevent all further starts of processes in this attempt. Drop its later events."""
        self.start_no_more()
        self._is_closed = True

    async def end(self, grace: float, flush_within: float) -> Sequence[Process]:
        """End all processes. Return the processes that did not end after SIGKILL: they are blocked in the kernel."""
        self.close()
        self._watchdog.close()
        left = await self.supervisor.end(grace)
        await self.supervisor.close(flush_within)
        return left
