"""Play a schedule in simulated time, with launchers that have no processes, and record what happened."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from launcher.base.log import TextHandler, shown_by
from launcher.errors import Exit
from launcher.gang import (
    Begin,
    Event,
    Finish,
    Gang,
    GangSettings,
    HubLost,
    JoinFailed,
    NotComplete,
    Restart,
    StartRefused,
    Stop,
    Train,
    Verdict,
    messages,
    protocol,
)
from launcher.model import Cause, CauseKind, Member, Start
from tests.simulation.generations import HubsGenerations
from tests.simulation.schedule import (
    DISTURBING,
    Apart,
    Broken,
    Cut,
    Death,
    Fault,
    Freeze,
    Killed,
    Off,
    Pace,
    Rival,
    Schedule,
    Silence,
    Told,
)
from tests.simulation.world import Computer, World

HUB = ("10.0.0.0", 7000)
SILENCE = 30.0
JOIN_WITHIN = 12.0  # seconds after which a launcher gives up joining
FIND_EVERY = 0.5  # seconds until peers are looked for again after JoinFailed
MARK_SEEN_WITHIN = 3.0  # seconds for which a member that has lost its hub looks for the mark of completion
FINISH_WITHIN = 1.5  # seconds for which a member waits for finish after a stop
GRACE = 25.0  # seconds; longer than the slowest children take to end
TOO_LATE = Start(999, None)  # what a preparation returns although it was cancelled
PAIRS = "; rank "  # the beginning of what the hub adds to a cause about members that cannot reach each other
_NAMED = re.compile(r"warning: rank (\d+) cannot reach rank (\d+) at ")
END_WITHIN = 240.0  # seconds after the last fault, to notice all silences, and for four attempts of slow members


@dataclass(frozen=True)
class Said:
    """A launcher has reported to its gang. If `attempt` is -1, the report is for all attempts."""

    word: str
    attempt: int = -1


@dataclass(frozen=True)
class Failed:
    """A launcher has reported a failure to its gang."""

    cause: Cause
    attempt: int | None
    age: float = 0.0


@dataclass(frozen=True)
class Reached:
    """The report of a failure has reached the hub. `died_at` is calculated from its age."""

    cause: Cause
    attempt: int
    died_at: float


@dataclass(frozen=True)
class Judged:
    """The hub has named the first cause. `sent` is the cause that the hub sends to all members."""

    cause: Cause
    then: Verdict
    sent: Cause


@dataclass(frozen=True)
class Prepared:
    """The hub's launcher has prepared a start, or refused it with a cause."""

    start: Start | Cause


@dataclass(frozen=True)
class Passed:
    """Trainer 0 has done a pass."""

    number: int


@dataclass(frozen=True)
class Claimed:
    """Another gang of this job has claimed a generation."""

    number: int


@dataclass(frozen=True)
class Marking:
    """The hub begins to write the mark of completion, or has written it."""

    done: bool


@dataclass(frozen=True)
class Welcomed:
    """The hub's welcome has reached a member, for the first time or after a reconnect."""


@dataclass(frozen=True)
class LastWord:
    """The hub's stop or finish has reached a member. `cause` is None if the job is complete."""

    cause: Cause | None


@dataclass(frozen=True)
class Runs:
    """A member has started the processes of this attempt. None: all processes of the member have ended."""

    attempt: int | None


@dataclass(frozen=True)
class Disturbed:
    """From now on, this member may lose other members, and other members may lose this member."""


@dataclass(frozen=True)
class Parted:
    """From now on until this time, two members cannot reach each other. The entry is of the first one."""

    other: int
    until: float


@dataclass(frozen=True)
class Named:
    """The hub has warned that the member does not reach another one."""

    other: int


@dataclass(frozen=True)
class Rejoins:
    """A launcher joins a new gang."""


@dataclass(frozen=True)
class Gone:
    """The launcher is killed, or its node is switched off."""


@dataclass(frozen=True)
class Left:
    """A launcher leaves its gang."""


@dataclass(frozen=True)
class Entry:
    """An event of the launcher of a rank, or a fault that it suffers."""

    at: float
    rank: int
    what: Any


@dataclass
class Story:
    """All that happened, in order."""

    schedule: Schedule
    entries: list[Entry] = field(default_factory=list)
    waiting: Collection[int] = ()  # living launchers that have not ended

    def of(self, *kinds: type, rank: int | None = None) -> list[Entry]:
        return [entry for entry in self.entries if isinstance(entry.what, kinds) and rank in (None, entry.rank)]

    def ends(self) -> dict[int, Entry]:
        """Return by rank the first event that announced the end of the session."""
        return {entry.rank: entry for entry in reversed(self.of(Stop, Finish, HubLost))}

    def undisturbed(self) -> bool:
        return not self.of(Disturbed)


# ---- a launcher without processes ------------------------------------------------------------------------------------


class Launcher:
    """A launcher without processes, which reports and acts as the real sessions do."""

    def __init__(self, job: Job, rank: int, pace: Pace) -> None:
        self.rank = rank
        self.computer = job.world.computer(f"10.0.0.{rank}", clock=1000.0 * rank)
        self.left = False
        self._note = partial(job.note, rank)
        self._job = job
        self._next_pass = 0
        self._pace = pace
        self._attempt = 0
        self._children: set[str] = set()
        self._children_of = 0
        self._doomed: list[tuple[Death, int]] = []
        self._joined = False
        self._got_sigterm = False
        self._rejoins = job.schedule.rejoins
        self._over = False
        self._held: list[tuple[Cause, float, int | None]] = []
        self._finished: asyncio.Future[None] = self.computer.create_future()
        self._joining: asyncio.Task[None] | None = None
        self.computer.run(self._make_gang, job)
        self.computer.call_later(pace.starts, self._start)

    def _make_gang(self, job: Job) -> None:
        rejoins = job.schedule.rejoins
        config = GangSettings(
            job.schedule.size,
            HUB[1],
            (self.computer.name,),
            silence=SILENCE,
            grace=GRACE,
            rejoins=rejoins,
        )
        self._gang = Gang(config, self._heard, complete=job.complete, judge=job.judge, prepare=job.prepare)

    def _start(self) -> None:
        if self._over:
            return
        if self._pace.early:
            self._serve()
        self._later(self._pace.stages, self._say, Said("staged"), self._gang.report_staged)
        self._joining = self.computer.create_task(self._join())
        self._later(JOIN_WITHIN, self._give_up)

    async def _join(self) -> None:
        await self._gang.listen()
        host = self.computer.name
        me = Member(f"pod-{self.rank}", "", host, host, self.rank)
        while not self._joined:
            try:
                await self._gang.join(me, HUB if self.rank else None, job="job", secret=b"secret")
                self._joined = True
            except JoinFailed:
                await asyncio.sleep(FIND_EVERY)
        for cause, died_at, attempt in self._held:
            self._fail(cause, died_at, attempt)

    def _give_up(self) -> None:
        if not self._joined:
            self._leave(0.0)

    # ---- events ------------------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        self._note(event)
        match event:
            case Begin(attempt, start):
                self._next_pass = 0 if start.resume is None else start.resume + 1
                if not (self._pace.early and attempt == 0):
                    self._serve()
            case Train():
                self._run("trainer")
                if self.rank == 0 and self._job.schedule.passes:
                    self._later(self._job.schedule.passes, self._passed, self._attempt)
                self._later(self._pace.trains, self._trained, self._attempt)
            case Restart(attempt):
                self._attempt = attempt
                self._later(self._pace.ends, self._ended, attempt)
            case Stop(cause, again):
                if again and not self._got_sigterm and (cause.rank != self.rank or cause.kind.is_child):
                    self._leave(self._pace.ends, reports=True, rejoins=True)
                else:
                    self._leave(self._pace.ends, reports=True, waits=cause.rank != self.rank)
            case HubLost():
                self._leave(MARK_SEEN_WITHIN, rejoins=self._rejoins)
            case Finish():
                if not self._finished.done():
                    self._finished.set_result(None)
                self._leave(0.0, reports=True)

    # ---- processes: a report about an attempt may come after the end of this attempt ---------------------------------

    def _serve(self) -> None:
        self._children_of = self._attempt
        self._note(Runs(self._attempt))
        self._run("pserver")
        self._later(
            self._pace.serves,
            self._say,
            Said("serving", self._attempt),
            partial(self._gang.report_serving, self._attempt),
        )

    def _run(self, kind: str) -> None:
        self._children.add(kind)
        for fault, number in [doomed for doomed in self._doomed if doomed[0].kind == kind][:1]:
            self._doomed.remove((fault, number))
            self._later(fault.after, self.suffer, fault, number)

    def _passed(self, attempt: int) -> None:
        if attempt == self._children_of and "trainer" in self._children:
            self._job.passed(self._next_pass)
            self._next_pass += 1
            self._later(self._job.schedule.passes, self._passed, attempt)

    def _trained(self, attempt: int) -> None:
        if attempt == self._children_of:
            if "trainer" not in self._children:
                return  # the launcher has died
            self._children.remove("trainer")
        self._say(Said("trained", attempt), partial(self._gang.report_trained, attempt))

    def _ended(self, attempt: int) -> None:
        if not self._over:
            self._children.clear()
            self._note(Runs(None))
            self._say(Said("ended", attempt), partial(self._gang.report_ended, attempt))

    # ---- faults ------------------------------------------------------------------------------------------------------

    def suffer(self, fault: Fault, number: int) -> None:
        """Suffer a fault that the launcher notices itself."""
        now = self.computer.time()
        match fault:
            case Death(_, _, kind, code, later) if kind in self._children:
                self._children.remove(kind)
                self._later(later, self._fail, self._cause(kind, code, number), now, self._children_of)
            case Death():
                self._doomed.append((fault, number))
            case Broken():
                self._fail(self._cause("staging", Exit.IO_FAILED, number), now, None)
            case Told() if not self._over:
                self._got_sigterm = True
                cause = self._cause("stopped", Exit.STOPPED, number)
                self._note(Failed(cause, None))
                self._gang.report_failed(cause, now)
                if not self._joined:  # a welcome may be on its way, and then the other members lose this member
                    self._note(Disturbed())
                    self._leave(0.0)

    def _cause(self, kind: str, code: int, number: int) -> Cause:
        return Cause(CauseKind(kind), self.rank, f"pod-{self.rank}", f"fault {number}", code)

    def _fail(self, cause: Cause, died_at: float, attempt: int | None) -> None:
        if self._over:
            return
        if self._joined:
            self._note(Failed(cause, attempt, self.computer.time() - died_at))
            self._gang.report_failed(cause, died_at, attempt)
        else:
            self._held.append((cause, died_at, attempt))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _leave(self, ends: float, *, reports: bool = False, waits: bool = False, rejoins: bool = False) -> None:
        if not self._over:
            self._over = True
            self.computer.create_task(self._end(ends, reports, waits, rejoins))

    async def _end(self, ends: float, reports: bool, waits: bool, rejoins: bool) -> None:
        if self._joining is not None and not self._joining.done():
            self._joining.cancel()
            await asyncio.wait([self._joining])
        await asyncio.sleep(ends)
        self._children.clear()
        self._note(Runs(None))
        if reports:
            self._say(Said("stopped"), self._gang.report_stopped)
        if waits:
            await asyncio.wait([self._finished], timeout=FINISH_WITHIN)
        if rejoins:
            await self._gang.wait_finished()
            self._note(Rejoins())
        self._note(Left())
        await self._gang.close()
        self.left = True

    def _say(self, said: Said, call: Callable[[], None]) -> None:
        if not self.left:
            self._note(said)
            call()

    def _later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        self.computer.call_later(seconds, call, *args)


# ---- a whole job -----------------------------------------------------------------------------------------------------


class Job:
    """All launchers of a schedule, and the faults that they suffer."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.story = Story(schedule)
        self.world = World(schedule.delays)
        self.world.tap = self._arrived
        self._generations = HubsGenerations(schedule)
        paces = itertools.cycle(schedule.paces)
        self._launchers = [Launcher(self, rank, next(paces)) for rank in range(schedule.size)]
        at = 0.0
        for number, fault in enumerate(schedule.faults):
            at += fault.after
            self.world.after(at, self._strike, fault, number)
        self._until = at + max((getattr(fault, "seconds", 0.0) for fault in schedule.faults), default=0.0) + END_WITHIN

    def run(self) -> Story:
        with shown_by(TextHandler(self._said)):
            self.world.run(lambda: not self._living(), self._until)
        self.story.waiting = self._living()
        self.world.close()
        self._generations.close()
        return self.story

    def _living(self) -> list[int]:
        return [node.rank for node in self._launchers if not node.left and not node.computer.dead]

    def note(self, rank: int, what: object) -> None:
        if not self.world.over:
            self.story.entries.append(Entry(self.world.now, rank, what))

    def _said(self, text: str) -> None:
        if pair := _NAMED.match(text):
            self.note(int(pair[1]), Named(int(pair[2])))

    # ---- called by the hub -------------------------------------------------------------------------------------------

    async def complete(self) -> None:
        self.note(0, Marking(done=False))
        await asyncio.sleep(self.schedule.marks)
        if sum(entry.what == Marking(done=False) for entry in self.story.entries) <= self.schedule.flawed:
            attempt = sum(entry.what.then is Verdict.RESTART for entry in self.story.of(Judged))
            cause = Cause(CauseKind.VOLUME, 0, "pod-0", f"the last pass of attempt {attempt} is not whole", 73)
            self.note(0, Failed(cause, attempt, 0.0))
            raise NotComplete(cause)
        if self.schedule.mark_fails:
            raise OSError(5, "the volume is gone")
        self.note(0, Marking(done=True))

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        sent, then = self._generations.judge(cause)
        self.note(0, Judged(replace(cause, what=cause.what.partition(PAIRS)[0]), then, sent))
        return sent, then

    async def prepare(self, cause: Cause | None) -> Start:
        try:
            start = await self._generations.prepare(cause)
        except asyncio.CancelledError:
            if not self.schedule.stubborn or self.world.over:
                raise
            return TOO_LATE
        self.note(0, Prepared(start))
        if isinstance(start, Cause):
            raise StartRefused(start)
        return start

    def passed(self, number: int) -> None:
        self.note(0, Passed(number))
        self._generations.passed(number)

    # ---- faults and messages -----------------------------------------------------------------------------------------

    def _strike(self, fault: Fault, number: int) -> None:
        node = self._launchers[fault.rank % self.schedule.size]
        hub, others = self._launchers[0], self._launchers[1:]
        struck = [node] if node is not hub else others
        if isinstance(fault, DISTURBING):
            for disturbed in {node, *(struck if isinstance(fault, Cut | Silence) else ())}:
                self.note(disturbed.rank, Disturbed())
        match fault:
            case Cut(_, _, later, away):
                for other in struck:
                    self.world.cut(other.computer, hub.computer, later, away)
            case Silence(_, _, up, down, seconds):
                for other in struck:
                    if up:
                        self.world.silence(other.computer, hub.computer, seconds)
                    if down:
                        self.world.silence(hub.computer, other.computer, seconds)
            case Apart(_, _, seconds):
                if pair := fault.pair(self.schedule.size):
                    one, other = (self._launchers[rank] for rank in pair)
                    self.world.part(one.computer, other.computer, seconds)
                    self.note(pair[0], Parted(pair[1], self.world.now + seconds))
            case Freeze(_, _, seconds):
                node.computer.freeze(seconds)
            case Killed():
                self.note(node.rank, Runs(None))
                self.note(node.rank, Gone())
                node.computer.kill()
            case Rival():
                self.note(0, Claimed(self._generations.claim_for_another_gang()))
            case Off():
                self.note(node.rank, Runs(None))
                self.note(node.rank, Gone())
                node.computer.switch_off()
            case _:
                node.computer.call_soon(node.suffer, fault, number)

    def _arrived(self, sender: Computer, receiver: Computer, line: bytes) -> None:
        """Record the messages that the rules need."""
        if line.startswith(b'{"word":"failed"') and receiver.name == HUB[0]:
            message = protocol.decode(line)
            cause, age = messages.read_failed(message)
            self.note(self._rank(sender), Reached(cause, messages.read_attempt(message), self.world.now - age))
        elif line.startswith(b'{"word":"welcome"'):
            self.note(self._rank(receiver), Welcomed())
        elif line.startswith(b'{"word":"stop"'):
            self.note(self._rank(receiver), LastWord(messages.read_stop(protocol.decode(line)).cause))
        elif line.startswith(b'{"word":"finish"') and not self.story.of(LastWord, rank=self._rank(receiver)):
            self.note(self._rank(receiver), LastWord(None))

    def _rank(self, computer: Computer) -> int:
        return int(computer.name.rpartition(".")[2])
