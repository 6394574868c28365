"""What a launcher does from its first moment to its outcome: a queue of events, a loop that decides what follows."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from launcher import deaths, paddle, report, tolerance, watchdog
from launcher.bootstrap import Already, Broken, Joined, Staged, Way, from_volume
from launcher.config import JobConfig
from launcher.ear import Ear
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.gang import Begin, Collect, Finish, Gang, HubLost, Lead, Next, Restart, Settings, Stop, Train
from launcher.generations import GONE, Generations
from launcher.history import History
from launcher.journal import Journal
from launcher.model import CHILDREN, FIRST, Cause, Member, Outcome, Plan, Process, Roster, Start
from launcher.processes import bounded, off_loop, reap_orphans
from launcher.record import Record
from launcher.say import Say
from launcher.supervise.guardian import Guardian
from launcher.supervise.supervisor import Died, PassDone, Serving
from launcher.turn import Due, Turn

T = TypeVar("T")

_FAILURE_GRACE = 1.0  # after a failure there is nothing left to save
_FINISHED_EARLY = 5.0  # between the end of a server and the word that all have trained
_HOLD = 30.0  # how long a failure before the join waits for a gang that it can be told to
_LEAVE_WITHIN = 1.5  # for the hub's word that the member at fault has left
_MARK_SEEN_WITHIN = 3.0  # a mark that the hub wrote may take a moment to be seen through a network volume
_NOTICED_LATER = 15.0  # both sides of a cut say and look every 5 s, out of step, and each has heard something last
_FAREWELL = 2.0  # what the end may take for logs and files, all together


class Told:
    """A signal says stop."""


@dataclass(frozen=True)
class TurnEnded:
    """Nothing runs any more of the turn before, but what the kernel holds."""

    left: Sequence[Process]


class HeldLongEnough:
    """No gang came to be told of a failure."""


@dataclass(frozen=True)
class Left:
    """The turn before the gang is to gather again has ended here; `cause` is why, with what is known by now."""

    cause: Cause
    processes: Sequence[Process]


class Conductor:
    """Knows how far this member is, and decides."""

    def __init__(
        self, config: JobConfig, flags: Sequence[str], command: Sequence[str], say: Say, guardian: Guardian | None
    ) -> None:
        self._config = config
        self._flags = flags
        self._command = command
        self._say = say
        self._guardian = guardian
        self._queue: asyncio.Queue[tuple[Ear, object]] = asyncio.Queue()
        self._ear = Ear(self._queue)  # for what concerns all gangs and turns
        self._rank: int | None = config.rank
        self._name = config.own_name  # until the roster tells: a pod's host name may be another than the pod's
        self._first_plan = self._plan(None, None, FIRST)
        self._roster: Roster | None = None
        self._staged = False
        self._record: Record | None = None
        self._journal: Journal | None = None  # from the first join on
        self._kept: Generations | None = None  # on the hub, also over several gangs
        self._held: tuple[Cause, float] | None = None
        self._gathers_after: Cause | None = None  # why the gang before this one is over
        self._signals = 0
        self._ending_turn: asyncio.Task[Sequence[Process]] | None = None  # the one before
        self._leaving: asyncio.Task[None] | None = None  # the gang before
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gather(rejoin=False)

    def _gather(self, *, rejoin: bool) -> None:
        """A gang to join, and the way there. Of those before it nothing is heard any more."""
        config = self._config
        self._of_gang = Ear(self._queue)
        listen = (config.pod_ip,) if config.pod_ip else None
        settings = self._settings = Settings(
            config.members,
            config.gang_port,
            listen,
            silence=config.silence,
            stall=config.stall_timeout,
            pservers=config.shape.pservers,
            gathers=config.gathers,
        )
        self._gang = Gang(
            settings,
            self._of_gang,
            self._say,
            complete=self._mark_complete,
            judge=self._judge,
            prepare=self._prepare,
        )
        self._way = Way(config, self._gang, self._say, self._of_gang, rejoin=rejoin, staged=self._staged)
        self._joined_now = False
        self._begun: Begin | None = None
        self._generations: asyncio.Future[Generations] = asyncio.get_running_loop().create_future()  # on the hub
        self._new_turn(0)
        if self._staged:
            self._gang.staged()

    async def conduct(self) -> Outcome:
        """Until the job is over for this member."""
        self._turn.order.serve_early(self._first_plan)
        self._way.begin()
        while True:
            match await self._next():
                case Joined() as joined:
                    self._joined(joined)
                case Staged():
                    self._staged = True
                    self._gang.staged()
                    self._try_order(self._turn.order.staged)
                case Begin() as begin:
                    self._begun = begin
                    self._begin_if_joined()
                case Lead():
                    self._try_order(self._turn.order.lead)
                case Train(stall):
                    self._train(stall)
                case Collect():
                    self._collect()
                case Serving():
                    self._turn.order.served()
                case PassDone(number):
                    self._passed(number)
                case Died() as death:
                    self._died(death)
                case Due(call):
                    call()
                case Restart(turn, cause):
                    self._restart(turn, cause)
                case TurnEnded(left):
                    self._turn_ended(left)
                case Broken(step, failure):
                    if over := self._broken(step, failure):
                        return await self._stop(over)
                case Told():
                    if over := self._told_to_stop():
                        return await self._stop(over)
                case HeldLongEnough() if self._held and not self._joined_now:
                    return await self._stop(self._held[0])
                case Stop(cause, True) if not self._signals and (cause.rank != self._rank or cause.kind in CHILDREN):
                    self._scatter(cause)
                case Left(cause, processes):
                    if over := self._gather_again(cause, processes):
                        return await self._stop(over)
                case Stop(cause):
                    return await self._stop(cause)
                case HubLost(cause):
                    if await self._is_complete():
                        return await self._finish()
                    if self._signals or not self._config.gathers:
                        return await self._stop(cause)
                    self._scatter(cause)
                case Finish():
                    return await self._finish()
                case Already():
                    self._say("the job is complete already: nothing to do")
                    return await self._finish()

    async def _next(self) -> object:
        while True:
            ear, event = await self._queue.get()
            if not ear.closed:
                return event

    # ---- what happens, and what follows --------------------------------------------------------------------------

    def _joined(self, joined: Joined) -> None:
        config, roster, rank = self._config, joined.roster, joined.rank
        me = roster.members[rank]
        self._rank = rank
        self._name = me.pod
        self._record, self._roster = joined.record, roster
        name = config.shape.name(rank)
        self._say.set_name(name)
        if config.members > 1:
            of = f"{name} of {config.shape.count(config.role)}"
            self._say(f"the gang is complete: this is {of}, the hub is {roster.members[0].pod}")
        self._joined_now = True
        if rank == 0 and self._kept is None:
            self._kept = self._all_generations(joined.record, joined.history, me)
        attempts_file = joined.record.attempts_file if joined.record.identified else None
        history = self._kept.history if self._kept and rank == 0 else None
        self._journal = Journal(
            config.job_name or "", config.output, roster, me, history, attempts_file, config.shape, self._say
        )
        if rank == 0 and self._kept:
            self._generations.set_result(self._kept)
        self._journal.phase("starting")
        self._way.stage(rank)
        if self._held:
            (cause, died_at), self._held = self._held, None
            turn = self._turn.number if cause.kind in CHILDREN else None
            self._gang.failed(replace(cause, rank=rank, pod=me.pod), died_at, turn)
        self._begin_if_joined()

    def _all_generations(self, record: Record, history: History, me: Member) -> Generations:
        config = self._config
        saves = paddle.saves(config, self._flags, self._command)
        if saves is None and config.max_restarts:
            self._say("no pass that is saved can be gone on after: each start begins at the beginning (docs/resume.md)")
        return Generations(
            config.max_restarts,
            saves,
            record,
            history,
            counts=self._first_plan.shows_passes,
            gathers=config.gathers,
            output=config.output,
            pod=me.pod,
            say=self._say,
            written=self._summarize,
            from_volume=self._from_volume,
            stalled_within=self._settings.stalled_within,
        )

    def _plan(self, roster: Roster | None, rank: int | None, start: Start) -> Plan:
        return paddle.plan(self._config, self._flags, self._command, roster, rank, start)

    def _begin_if_joined(self) -> None:
        """The hub's word may come before this member knows that it has joined."""
        if self._begun is None or self._journal is None or not self._joined_now:
            return
        start = self._begun.start
        after = "" if start.resume is None else f", after pass {start.resume}"
        self._turn.supervisor.place_logs(
            self._journal.folder, f"generation {start.generation}, pod {self._name}{after}"
        )
        self._journal.begin(start)
        make_plan = partial(self._plan, self._roster, self._rank, start)
        self._try_order(partial(self._turn.order.begin, make_plan))
        if self._begun.turn == 0:
            for change in paddle.replaced(self._config, self._turn.order.plan or self._first_plan):
                self._say(f"warning: {change}")

    def _try_order(self, go_on: Callable[[], None]) -> None:
        """A plan can turn out to be wrong only when the roster is known."""
        try:
            go_on()
        except Failure as failure:
            self._turn.order.close()
            self._of_gang(Broken("plan", failure))

    def _train(self, stall: float) -> None:
        self._say("every server serves and everything is copied: training")
        self._turn.watchdog.train(stall)
        self._enter("training" if self._first_plan.trainers else "serving")
        self._try_order(self._turn.order.train)

    def _collect(self) -> None:
        if not (self._begun and self._journal and self._roster and self._joined_now):
            return  # early servers are all there is here yet, since the volume does not answer
        self._say(
            "no trainer has printed anything for too long (LAUNCHER_STALL_TIMEOUT): looking what all processes do"
        )
        generation = self._begun.start.generation
        self._turn.watchdog.collect(
            self._turn.supervisor.subjects(),
            watchdog.names(self._roster, self._config.shape),
            os.path.join(self._journal.folder, watchdog.file_name(generation)),
            f"{self._config.shape.name(self._rank or 0)} (pod {self._name}), generation {generation}, {report.now()}",
            show=not self._config.job_folder,
        )

    def _passed(self, number: int) -> None:
        if self._journal:
            self._journal.passed(number)
        if self._generations.done():
            self._generations.result().passed()

    def _died(self, death: Died) -> None:
        if death.process.role == "trainer" and death.code == 0:
            self._turn.order.trainer_done()
            if self._turn.order.done:
                self._enter("trained")
        elif death.process.may_finish and death.code == 0:
            self._turn.later(_FINISHED_EARLY, lambda: self._fail_by(death))
        else:
            self._fail_by(death)

    def _fail_by(self, death: Died) -> None:
        if not death.process.echo:
            for line in death.tail:  # else only whoever reads the volume would see why
                self._say(f"{death.process.role}: {line}")
        mode = paddle.mode(self._config, self._command)
        self._fail(deaths.cause(death, mode, self._rank, self._name), death.at)

    def _broken(self, step: str, failure: Failure) -> Cause | None:
        """The cause, where it ends this member at once; None where a gang is told first."""
        cause = Cause(step, self._rank, self._name, failure.message, failure.code)
        if self._joined_now or step == "staging":
            self._fail(cause, time.monotonic())
            return None
        return self._held[0] if self._held else cause

    def _told_to_stop(self) -> Cause | None:
        self._turn.order.close()
        cause = Cause("stopped", self._rank, self._name, "was told to stop (SIGTERM)", Exit.STOPPED)
        self._gang.failed(cause, time.monotonic())
        if self._joined_now:
            return None
        return self._gathers_after or cause  # nobody may know this member yet, and nobody will answer

    def _fail(self, cause: Cause, died_at: float) -> None:
        """Tell the gang; before there is one, hold the cause until there is, so that it is told once for all."""
        self._say(cause.what)
        if self._joined_now:
            self._gang.failed(cause, died_at, self._turn.number if cause.kind in CHILDREN else None)
        elif self._held is None:
            self._held = (cause, died_at)
            self._say(f"waiting up to {_HOLD:g} s for the gang, to tell it")
            self._ear.later(_HOLD, HeldLongEnough())

    # ---- turns ---------------------------------------------------------------------------------------------------

    def _new_turn(self, number: int) -> None:
        watched = self._config.stall_timeout > 0
        self._turn = Turn(number, Ear(self._queue), self._gang, self._say, self._guardian, watched=watched)
        if self._staged:
            self._turn.order.staged()
        if self._signals:
            self._turn.order.close()

    def _restart(self, turn: int, cause: Cause) -> None:
        """End what runs here. The hub says begin once nothing runs anywhere."""
        self._say(f"{report.first_cause(cause, self._config.shape)}: all processes of the job end, to start again")
        self._enter("restarting")
        self._place_early_logs()
        self._begun = None
        self._end_turn(_FAILURE_GRACE)
        self._new_turn(turn)

    def _end_turn(self, grace: float) -> asyncio.Task[Sequence[Process]]:
        """And the one before, which may still be ending."""
        before = [self._ending_turn] if self._ending_turn and not self._ending_turn.done() else []
        self._ending_turn = asyncio.ensure_future(self._see_the_end(self._turn.end(grace, _FAREWELL), *before))
        return self._ending_turn

    async def _see_the_end(self, *ends: Awaitable[Sequence[Process]]) -> Sequence[Process]:
        left = [process for each in await asyncio.gather(*ends) for process in each]
        self._of_gang(TurnEnded(left))
        return left

    def _place_early_logs(self) -> None:
        """Of servers that started, and perhaps failed, before a generation began."""
        if self._journal and self._begun is None:
            mark = f"pod {self._name}, before a generation began"
            self._turn.supervisor.place_logs(self._journal.folder, mark)

    def _turn_ended(self, left: Sequence[Process]) -> None:
        if left:
            self._fail(self._held_by_the_kernel(left), time.monotonic())
        else:
            self._gang.ended(self._turn.number)

    def _held_by_the_kernel(self, left: Sequence[Process]) -> Cause:
        roles_left = ", ".join(process.role for process in left)
        what = f"what ran before does not end even by SIGKILL ({roles_left}): nothing can be started again here"
        return Cause("launcher", self._rank, self._name, what, Exit.IO_FAILED)

    # ---- gathering again -----------------------------------------------------------------------------------------

    def _scatter(self, cause: Cause) -> None:
        """A member is gone, and another pod may come in its place: this one ends its children and joins anew."""
        self._joined_now = False
        self._gathers_after = cause
        self._enter("gathering")
        self._place_early_logs()
        self._of_gang.close()
        self._turn.over()
        grace = self._config.stop_grace if cause.kind == "stopped" else _FAILURE_GRACE
        self._leaving = asyncio.ensure_future(self._leave_gang(cause, self._end_turn(grace)))

    async def _leave_gang(self, cause: Cause, ending: asyncio.Task[Sequence[Process]]) -> None:
        # Whoever is cut off ends its children after as long a silence, which it may notice later, and by its grace.
        fence = asyncio.sleep(_NOTICED_LATER + self._config.stop_grace if cause.silent else 0)
        cause, *_ = await asyncio.gather(self._explained(cause), ending, self._gang.close(), self._way.end(), fence)
        self._ear(Left(cause, ending.result()))

    def _gather_again(self, cause: Cause, left: Sequence[Process]) -> Cause | None:
        """The cause, where it ends this member instead."""
        if left:
            return self._held_by_the_kernel(left)
        self._say(
            f"{report.first_cause(cause, self._config.shape)}: all processes of the job have ended; waiting up to "
            f"{self._config.rejoin_timeout:g} s (LAUNCHER_REJOIN_TIMEOUT) for who takes its place"
        )
        if self._kept is not None:
            self._kept.explain(cause)
        self._gather(rejoin=True)
        self._way.begin()
        return None

    # ---- the end -------------------------------------------------------------------------------------------------

    async def _finish(self) -> Outcome:
        """All have trained: servers have nobody left to serve."""
        self._turn.order.close()
        self._enter("finishing")
        await self._end_children(self._config.stop_grace)
        self._gang.stopped()
        return report.outcome(None, self._rank, told_to_stop=self._signals > 0, shape=self._config.shape)

    async def _stop(self, cause: Cause) -> Outcome:
        """The job is over, not complete. The member at fault leaves first, since Kubernetes blames who fails first."""
        self._turn.order.close()
        self._enter("ending")
        orderly = cause.kind == "stopped" or self._signals > 0
        ending = self._end_children(self._config.stop_grace if orderly else _FAILURE_GRACE)
        cause, _ = await asyncio.gather(self._explained(cause), ending)
        self._gang.stopped()
        if self._joined_now and cause.rank != self._rank:
            await self._until_finish()
        return report.outcome(cause, self._rank, told_to_stop=self._signals > 0, shape=self._config.shape)

    async def _explained(self, cause: Cause) -> Cause:
        """A peer that was lost, or told to stop, cannot say why: one member asks those who may know."""
        if cause.kind not in GONE or not report.stands_for(cause, self._rank) or self._signals:
            return cause
        asked = asyncio.ensure_future(self._way.what_became_of(cause.pod))
        either: list[asyncio.Future[Any]] = [asked, self.told]  # all may be told to stop, one after the other
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return cause
        became = asked.result()
        return replace(cause, what=f"{cause.what}; Kubernetes says: {became}") if became else cause

    async def _is_complete(self) -> bool:
        """This member has trained and lost its hub: the mark on the volume tells whether all have."""
        assert self._record is not None
        deadline = time.monotonic() + _MARK_SEEN_WITHIN
        while self._record.identified and (left := deadline - time.monotonic()) > 0:
            try:
                if await bounded(off_loop(self._record.is_complete), left):
                    return True
            except (asyncio.TimeoutError, Failure):
                break
            await asyncio.sleep(0.2)
        return False

    async def _end_children(self, grace: float) -> None:
        before = [self._ending_turn] if self._ending_turn else []
        await asyncio.gather(self._way.end(), self._turn.supervisor.end(grace), *before)

    async def _until_finish(self) -> None:
        async def finish() -> None:
            while not isinstance(await self._next(), Finish):
                pass

        try:
            await bounded(finish(), _LEAVE_WITHIN)
        except asyncio.TimeoutError:
            pass  # nobody waits for another's end, only for its word

    async def leave(self, result: Outcome) -> None:
        """Tell everybody and write what is still to be written, within a bound that a stalled volume cannot move."""
        if self._generations.done() and result.cause is None:
            self._generations.result().complete()
        self._place_early_logs()
        if self._journal:
            self._journal.ended(result)
        else:
            self._turn.supervisor.place_logs(self._folder_without_rank(), f"pod {self._config.own_name}, never joined")
        message = report.termination_message(result)
        said = f"exit code {result.code}: {result.text}"
        others = []
        if result.code in FOR_GOOD:
            others.append(self._way.tell_failed_for_good(said))
        elif tolerance.counts(self._config, result.code):
            others.append(self._way.tell_counted(said))
        farewells = [
            self._gang.close(),
            self._turn.supervisor.close(_FAREWELL),
            off_loop(report.write_termination_message, self._config.termination_log, message),
            *([off_loop(self._journal.flush, _FAREWELL)] if self._journal else []),
            *others,
        ]
        await asyncio.wait([asyncio.ensure_future(farewell) for farewell in farewells], timeout=_FAREWELL + 0.5)
        self._say(said)  # behind what all these had to say: whoever looks at one line looks at the last

    def _folder_without_rank(self) -> str | None:
        """Where the log of a server goes that failed before there was a gang; nowhere if it did not fail."""
        failed = self._held is not None and self._held[0].kind == "pserver"
        return os.path.join(self._config.output, f"pod_{self._config.own_name}") if failed else None

    # ---- small helps ---------------------------------------------------------------------------------------------

    def _enter(self, phase: str) -> None:
        if self._journal:
            self._journal.phase(phase)

    async def _from_volume(self, work: Callable[[], T]) -> T:
        return await from_volume(self._config, work)

    def _summarize(self) -> None:
        if self._journal:
            self._journal.summarize()

    def _judge(self, cause: Cause) -> tuple[Cause, Next]:
        if cause.kind == "stalled" and self._begun:
            cause = watchdog.with_place(cause, self._config, self._begun.start.generation)
        return self._generations.result().judge(cause) if self._generations.done() else (cause, Next.STOP)

    async def _prepare(self, cause: Cause | None) -> Start:
        generations = await asyncio.shield(self._generations)  # whoever stops waiting must not end it
        assert self._roster is not None
        return await generations.prepare(cause, self._roster)

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
            self._ear(Told())
        else:
            self._turn.supervisor.kill()
