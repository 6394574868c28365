"""One launcher from its configuration to its exit code: one queue of events, and one loop that decides what follows."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from launcher import alive, deaths, paddle, report, roles, tolerance
from launcher.bootstrap import Already, Broken, Joined, Staged, Way
from launcher.config import JobConfig
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.gang import Finish, Gang, HubLost, Lead, Settings, Stop, Train
from launcher.journal import Journal
from launcher.model import Cause, Outcome, Roster
from launcher.processes import become_subreaper, heed_all_signals, off_loop, reap_orphans
from launcher.record import Record
from launcher.say import Say
from launcher.supervise.guardian import Guardian
from launcher.supervise.proctable import tagged_environment
from launcher.supervise.supervisor import Died, PassDone, Serving, Supervisor

_FAILURE_GRACE = 1.0  # after a failure there is nothing left to save
_LED_WITHIN = 15.0  # for the first trainer to listen: importing paddle and making its data ready
_FINISHED_EARLY = 5.0  # between the end of a server and the word that all have trained
_HOLD = 30.0  # how long a failure before the join waits for a gang that it can be told to
_LEAVE_WITHIN = 1.5  # for the hub's word that the member at fault has left
_MARK_SEEN_WITHIN = 3.0  # a mark that the hub wrote may take a moment to be seen through a network volume
_FAREWELL = 2.0  # what the end may take for logs and files, all together


class Told:
    """A signal says stop."""


class Unled:
    """The first trainer has had its time to listen."""


class HeldLongEnough:
    """No gang came to be told of a failure."""


def launch(config: JobConfig, flags: Sequence[str], command: Sequence[str], received: Sequence[int]) -> int:
    """Run one launcher and give its exit code. `received`: the signals that came so far.

    The caller ends the process without waiting for threads, which a stalled volume may hold.
    """
    heed_all_signals()
    tag = secrets.token_hex(8)
    guardian = None if os.getpid() == 1 else Guardian(tag)
    say = Say(name=roles.called(config.role, "?") if config.rank is None else config.shape.name(config.rank))
    for warning in (*config.warnings, *paddle.warnings(flags, command)):
        say(f"warning: {warning}")
    if attempts := tolerance.said(config):
        say(attempts)
    become_subreaper()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    result = loop.run_until_complete(_conduct(config, flags, command, received, say, guardian, tag))
    if guardian is not None:
        guardian.goodbye()
    say.close(0.5)
    return result.code


async def _conduct(
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    received: Sequence[int],
    say: Say,
    guardian: Guardian | None,
    tag: str,
) -> Outcome:
    conductor = Conductor(config, flags, command, say, guardian, tag)
    conductor.watch_signals(received)
    try:
        await alive.answer(config.workdir)
    except OSError as error:
        say(f"warning: `paddle-launcher alive` will not be answered: {error}")
    result = await conductor.conduct()
    await conductor.leave(result)
    if config.stay and result.code == Exit.COMPLETE:
        say("staying until told to stop (LAUNCHER_STAY)")
        await conductor.told
    return result


class Conductor:
    """Knows how far this member is, and decides."""

    def __init__(
        self,
        config: JobConfig,
        flags: Sequence[str],
        command: Sequence[str],
        say: Say,
        guardian: Guardian | None,
        tag: str,
    ) -> None:
        self._config = config
        self._flags = flags
        self._command = command
        self._say = say
        self._queue: asyncio.Queue[object] = asyncio.Queue()
        events = self._queue.put_nowait
        listen = (config.pod_ip,) if config.pod_ip else None
        self._gang = Gang(
            Settings(config.members, config.gang_port, listen, silence=config.silence, pservers=config.shape.pservers),
            events,
            say,
            complete=self._mark_complete,
            judge=self._judge,
        )
        self._supervisor = Supervisor(events, say, tag, guardian)
        self._way = Way(config, self._gang, say, events, tagged_environment(config.environment, tag))
        self._rank: int | None = config.rank
        self._name = config.own_name  # until the roster tells: a pod's host name may be another than the pod's
        self._roster: Roster | None = None
        self._make_plan()
        self._unserved = 0
        self._untrained = len(self._plan.trainers)
        self._staged = False
        self._planned = False  # with the roster
        self._may_lead = False
        self._led = False
        self._record: Record | None = None
        self._journal: Journal | None = None  # from the join on
        self._held: tuple[Cause, float] | None = None
        self._may_train = False
        self._signals = 0
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def conduct(self) -> Outcome:
        """Until the job is over for this member."""
        if self._plan.early:
            self._start_servers()
        self._way.begin()
        while True:
            match await self._queue.get():
                case Joined() as joined:
                    self._joined(joined)
                case Staged():
                    self._staged = True
                    self._gang.staged()
                    self._start_late_servers()
                case Lead():
                    self._lead()
                case Unled():
                    self._unled(f"does not listen within {_LED_WITHIN:g} s")
                case Serving():
                    self._served()
                case Train():
                    self._train()
                case PassDone(number) if self._journal:
                    self._journal.passed(number)
                case Died() as death:
                    self._died(death)
                case Broken(step, failure):
                    if over := self._broken(step, failure):
                        return await self._stop(over)
                case Told():
                    if over := self._told_to_stop():
                        return await self._stop(over)
                case HeldLongEnough() if self._held and not self._journal:
                    return await self._stop(self._held[0])
                case Stop(cause):
                    return await self._stop(cause)
                case HubLost(cause):
                    return await self._without_hub(cause)
                case Finish():
                    return await self._finish()
                case Already():
                    self._say("the job is complete already: nothing to do")
                    return await self._finish()

    # ---- what happens, and what follows --------------------------------------------------------------------------

    def _joined(self, joined: Joined) -> None:
        config, roster, rank = self._config, joined.roster, joined.rank
        me = roster.members[rank]
        self._rank = rank
        self._name = me.pod
        self._record = joined.record
        name = config.shape.name(rank)
        self._say.set_name(name)
        if config.members > 1:
            of = f"{name} of {config.shape.count(config.role)}"
            self._say(f"the gang is complete: this is {of}, the hub is {roster.members[0].pod}")
        counted = joined.record.identified and self._plan.shows_passes
        self._journal = Journal(
            config.job_name or "",
            config.output,
            roster,
            me,
            joined.record.attempts_file if counted else None,
            joined.failed_attempts,
            config.shape,
            self._say,
        )
        self._supervisor.place_logs(self._journal.folder, f"attempt {self._journal.attempt}, pod {me.pod}")
        self._journal.phase("starting")
        self._way.stage(rank)
        if self._held:
            cause, died_at = self._held
            self._gang.failed(replace(cause, rank=rank, pod=me.pod), died_at)
        self._roster = roster
        try:
            self._make_plan()
        except Failure as failure:
            self._queue.put_nowait(Broken("plan", failure))
        else:
            self._planned = True
            for change in paddle.replaced(config, self._plan):
                self._say(f"warning: {change}")
            self._start_late_servers()
            if self._may_lead:
                self._lead()
            if self._may_train:
                self._train()

    def _make_plan(self) -> None:
        self._plan = paddle.plan(self._config, self._flags, self._command, self._roster, self._rank)

    def _start_servers(self) -> None:
        """A member serves once its servers do, and the trainer that all others find each other by."""
        self._unserved = sum(bool(process.ports) for process in (*self._plan.servers, *self._plan.trainers))
        for server in self._plan.servers:
            self._supervisor.start(server)
        if not self._unserved:
            self._gang.serving()

    def _start_late_servers(self) -> None:
        """Those that need the roster and what is copied."""
        if self._planned and self._staged and not self._plan.early and not self._signals:
            self._start_servers()

    def _served(self) -> None:
        self._unserved -= 1
        if not self._unserved:
            self._gang.serving()

    def _lead(self) -> None:
        """Others would only try in vain, every 3 s, as long as the first trainer does not listen."""
        self._may_lead = True
        if self._planned and self._plan.leads and not self._signals:
            self._say("everything is copied: the first trainer starts, the others once it listens")
            self._supervisor.start(self._plan.trainers[0])
            self._led = True
            asyncio.get_running_loop().call_later(_LED_WITHIN, self._queue.put_nowait, Unled())

    def _unled(self, why: str) -> None:
        """A program of another kind may never listen; trying in vain harms nobody."""
        if self._unserved:
            self._say(f"the first trainer {why}: the others start without that")
            self._unserved = 0
            self._gang.serving()

    def _train(self) -> None:
        """The word may come before this member knows that it has joined; and after it was told to stop."""
        self._may_train = True
        if not self._planned or self._signals:
            return
        self._say("every server serves and everything is copied: training")
        self._enter("training" if self._plan.trainers else "serving")
        self._make_plan()  # again: what was copied meanwhile says which configuration there is
        for trainer in self._plan.trainers[1 if self._led else 0 :]:
            self._supervisor.start(trainer)
        if not self._plan.trainers:
            self._gang.trained()  # the others decide; from now on the mark of completion says whether they have

    def _died(self, death: Died) -> None:
        if death.process.role == "trainer" and death.code == 0:
            self._trainer_done()
            return
        if death.process.may_finish and death.code == 0:
            asyncio.get_running_loop().call_later(_FINISHED_EARLY, self._fail_by, death)
            return
        self._fail_by(death)

    def _trainer_done(self) -> None:
        if self._led:
            self._unled("has ended without having listened")
        self._untrained -= 1
        if not self._untrained:
            self._enter("trained")
            self._gang.trained()

    def _fail_by(self, death: Died) -> None:
        if not death.process.echo:
            for line in death.tail:  # else only whoever reads the volume would see why
                self._say(f"{death.process.role}: {line}")
        mode = paddle.mode(self._config, self._command)
        self._fail(deaths.cause(death, mode, self._rank, self._name), death.at)

    def _broken(self, step: str, failure: Failure) -> Cause | None:
        """The cause, where it ends this member at once; None where a gang is told first."""
        cause = Cause(step, self._rank, self._name, failure.message, failure.code)
        if self._journal or step == "staging":
            self._fail(cause, time.monotonic())
            return None
        return self._held[0] if self._held else cause

    def _told_to_stop(self) -> Cause | None:
        cause = Cause("stopped", self._rank, self._name, "was told to stop (SIGTERM)", Exit.STOPPED)
        self._gang.failed(cause, time.monotonic())
        return None if self._journal else cause  # without: nobody may know this member yet, and nobody will answer

    def _fail(self, cause: Cause, died_at: float) -> None:
        """Tell the gang; before there is one, hold the cause until there is, so that it is told once for all."""
        self._say(cause.what)
        if self._journal:
            self._gang.failed(cause, died_at)
        elif self._held is None:
            self._held = (cause, died_at)
            self._say(f"waiting up to {_HOLD:g} s for the gang, to tell it")
            asyncio.get_running_loop().call_later(_HOLD, self._queue.put_nowait, HeldLongEnough())

    # ---- the end -------------------------------------------------------------------------------------------------

    async def _finish(self) -> Outcome:
        """All have trained: servers have nobody left to serve."""
        self._enter("finishing")
        await self._end_children(self._config.stop_grace)
        self._gang.stopped()
        return report.outcome(None, self._rank, told_to_stop=self._signals > 0, shape=self._config.shape)

    async def _stop(self, cause: Cause) -> Outcome:
        """The job is over, not complete. The member at fault leaves first, since Kubernetes blames who fails first."""
        self._enter("ending")
        orderly = cause.kind == "stopped" or self._signals > 0
        ending = self._end_children(self._config.stop_grace if orderly else _FAILURE_GRACE)
        cause, _ = await asyncio.gather(self._explained(cause), ending)
        self._gang.stopped()
        if self._journal and cause.rank != self._rank:
            await self._until_finish()
        return report.outcome(cause, self._rank, told_to_stop=self._signals > 0, shape=self._config.shape)

    async def _explained(self, cause: Cause) -> Cause:
        """A lost peer cannot say what happened to it: one member asks those who may know."""
        if not report.stands_for_lost(cause, self._rank):
            return cause
        became = await self._way.what_became_of(cause.pod)
        return replace(cause, what=f"{cause.what}; Kubernetes says: {became}") if became else cause

    async def _without_hub(self, cause: Cause) -> Outcome:
        """This member has trained: the mark on the volume tells whether all have."""
        assert self._record is not None
        deadline = time.monotonic() + _MARK_SEEN_WITHIN
        while self._record.identified and (left := deadline - time.monotonic()) > 0:
            try:
                if await asyncio.wait_for(off_loop(self._record.is_complete), left):
                    return await self._finish()
            except asyncio.TimeoutError:
                break
            await asyncio.sleep(0.2)
        return await self._stop(cause)

    async def _end_children(self, grace: float) -> None:
        await asyncio.gather(self._way.end(), self._supervisor.end(grace))

    async def _until_finish(self) -> None:
        async def finish() -> None:
            while not isinstance(await self._queue.get(), Finish):
                pass

        try:
            await asyncio.wait_for(finish(), _LEAVE_WITHIN)
        except asyncio.TimeoutError:
            pass  # nobody waits for another's end, only for its word

    async def leave(self, result: Outcome) -> None:
        """Tell everybody and write what is still to be written, within a bound that a stalled volume cannot move."""
        self._say(f"exit code {result.code}: {result.text}")
        if self._journal:
            self._journal.ended(result)
        else:
            self._supervisor.place_logs(self._folder_without_rank(), f"pod {self._config.own_name}, never joined")
        message = report.termination_message(result)
        for_good = result.code in FOR_GOOD
        farewells = [
            self._gang.close(),
            self._supervisor.close(_FAREWELL),
            off_loop(report.write_termination_message, self._config.termination_log, message),
            *([off_loop(self._journal.flush, _FAREWELL)] if self._journal else []),
            *([self._way.tell_failed_for_good(f"exit code {result.code}: {result.text}")] if for_good else []),
        ]
        await asyncio.wait([asyncio.ensure_future(farewell) for farewell in farewells], timeout=_FAREWELL + 0.5)

    def _folder_without_rank(self) -> str | None:
        """Where the log of a server goes that failed before there was a gang; nowhere if it did not fail."""
        failed = self._held is not None and self._held[0].kind == "pserver"
        return os.path.join(self._config.output, f"pod_{self._config.own_name}") if failed else None

    # ---- small helps ---------------------------------------------------------------------------------------------

    def _enter(self, phase: str) -> None:
        if self._journal:
            self._journal.phase(phase)

    def _judge(self, cause: Cause) -> Cause:
        return self._journal.judge(cause) if self._journal else cause

    async def _mark_complete(self) -> None:
        if self._record:
            await off_loop(self._record.mark_complete)

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
        self._signals += 1
        if self._signals == 1:
            self.told.set_result(None)
            self._queue.put_nowait(Told())
        else:
            self._supervisor.kill()
