"""Helpers for tests of the life of a pod: a real launcher without real processes. The test plays its hub."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from launcher import config
from launcher.discovery.finder import Finder, FinderSettings, SingleFinder
from launcher.errors import Exit
from launcher.gang import Begin, Event, GangSettings, Train, Verdict
from launcher.model import Cause, CauseKind, Member, MemberReport, Numbers, Peers, Process, Roster, Start
from launcher.processes.supervisor import Died, NumbersSeen, PassDone, Serving
from launcher.run import session as session_module
from launcher.run.factories import Factories
from launcher.run.join import Joined
from launcher.run.node import Node
from launcher.run.session import Session
from launcher.run.signals import Signals
from launcher.store.record import Record
from tests.support.members import until

IDENTITY = "job-1"
PS = ("python", "train.py")  # the command of a job whose servers need the roster

LOST = Cause(CauseKind.LOST, 0, "pod-0", "its connection ended", Exit.PEER_LOST)
SETTINGS = GangSettings(2, 0)
KILLED = Cause(CauseKind.TRAINER, 0, "pod-0", "trainer was killed", 137)


async def settle() -> None:
    """Run all callbacks that are ready, and all callbacks that these cause without waiting for anything."""
    for _ in range(50):
        await asyncio.sleep(0)


class FakeSupervisor:
    """The processes of one attempt. They serve and end when the test says so."""

    def __init__(self, events: Callable[[object], None], *_: object, **__: object) -> None:
        self._events = events
        self.started: list[Process] = []
        self.logs: list[tuple[str | None, str]] = []  # folders with their marks
        self.ended_within: list[float] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.blocked: list[Process] = []  # these do not end after SIGKILL
        self.forwarded: list[int] = []  # signals
        self.killed = self.closed = False

    @property
    def roles(self) -> list[str]:
        """The roles of all processes that were started, in order."""
        return [process.role for process in self.started]

    def serve(self, role: str = "pserver") -> None:
        self._events(Serving(self._of(role)))

    def pass_done(self, number: int) -> None:
        self._events(PassDone(number))

    def numbers_seen(self, numbers: Numbers) -> None:
        self._events(NumbersSeen(numbers))

    def die(self, role: str, code: int, *tail: str) -> None:
        self._events(Died(self._of(role), code, time.monotonic(), tail))

    def _of(self, role: str) -> Process:
        return next(process for process in self.started if process.role == role)

    # ---- called by the launcher ----------------------------------------------------------------------------------

    def start(self, process: Process) -> None:
        self.started.append(process)

    def subjects(self) -> list[Any]:
        return []

    def last_line(self) -> str:
        return ""

    def set_log_folder(self, folder: str | None, mark: str) -> None:
        self.logs.append((folder, mark))

    async def end(self, grace: float) -> list[Process]:
        self.ended_within.append(grace)
        await self.may_end.wait()
        return self.blocked

    def forward(self, number: int) -> None:
        self.forwarded.append(number)

    def kill(self) -> None:
        self.killed = True

    async def close(self, flush_within: float) -> None:
        self.closed = True


class FakeGang:
    """A gang with one member. The test decides in place of its hub."""

    def __init__(
        self,
        settings: GangSettings,
        on_event: Callable[[Event], None],
        *,
        complete: Callable[[], Awaitable[None]] | None = None,
        judge: Callable[[Cause], tuple[Cause, Verdict]] | None = None,
        prepare: Callable[[Cause | None], Awaitable[Start]] | None = None,
        seen: Callable[[str, int, str, str], None] | None = None,
        newcomer: Callable[[], None] | None = None,
    ) -> None:
        self.size = settings.size
        self.tell = on_event
        self._judge, self._prepare = judge, prepare
        self.identity = "gang-1"
        self.may_join = asyncio.Event()
        self.may_join.set()
        self.finished, self.others_ended = asyncio.Event(), asyncio.Event()
        self.reports: list[tuple[str, int | None]] = []  # each with its attempt
        self.failures: list[tuple[Cause, int | None]] = []  # each with its attempt
        self.waits: list[str] = []  # which ends this member has waited for
        self.hub_died = False
        self.closed = False

    def connected_peers(self) -> int:
        return 1

    def reported(self, what: str) -> list[int | None]:
        """Return the attempts for which the member has reported this."""
        return [attempt for name, attempt in self.reports if name == what]

    @property
    def causes(self) -> list[Cause]:
        return [cause for cause, _ in self.failures]

    async def prepare(self) -> Start:
        """Let the member, as the hub, prepare its first generation."""
        assert self._prepare is not None
        return await self._prepare(None)

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        """Let the member, as the hub, judge a cause."""
        assert self._judge is not None
        return self._judge(cause)

    # ---- called by the launcher ----------------------------------------------------------------------------------

    async def listen(self) -> None:
        pass

    async def join(self, me: Member, hub: object, *, job: str, secret: bytes | None) -> tuple[Roster, int]:
        await self.may_join.wait()
        assert me.rank is not None
        return roster(self.size, me), me.rank

    def missing(self) -> None:
        return None

    def joined_pods(self) -> list[str]:
        return []

    def report_staged(self) -> None:
        self.reports.append(("staged", None))

    def report_serving(self, attempt: int) -> None:
        self.reports.append(("serving", attempt))

    def report_trained(self, attempt: int) -> None:
        self.reports.append(("trained", attempt))

    def report_ended(self, attempt: int) -> None:
        self.reports.append(("ended", attempt))

    def report_collected(self, survey: int, report: MemberReport) -> None:
        self.reports.append(("collected", survey))

    def report_stopped(self) -> None:
        self.reports.append(("stopped", None))

    def report_failed(self, cause: Cause, died_at: float, attempt: int | None = None) -> None:
        self.failures.append((cause, attempt))

    async def wait_finished(self) -> None:
        self.waits.append("finished")
        await self.finished.wait()

    def returning(self, cause: Cause, *, without_lost: bool) -> int | None:
        return None

    async def wait_others_ended(self) -> None:
        self.waits.append("others ended")
        await self.others_ended.wait()

    def remaining_run_time(self) -> float:
        return 0.0

    async def close(self) -> None:
        self.closed = True


class FakeFinder(SingleFinder):
    """A finder that knows the rank of this member. Rank 0 is the hub."""

    def __init__(self, settings: FinderSettings) -> None:
        super().__init__(settings)
        self.answer = ""  # of Kubernetes about a lost pod
        self.closed = False

    async def find(self) -> Peers:
        rank = self._settings.rank or 0
        return Peers(self._own_member(rank, "127.0.0.1"), "127.0.0.1" if rank else None, IDENTITY, rank)

    async def describe_peer(self, pod: str) -> str:
        return self.answer

    async def close(self) -> None:
        self.closed = True


class FakeStaging:
    """A copy that ends, or fails, when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None
        self.runs = 0
        self.closed = False

    async def run(self) -> int:
        self.runs += 1
        await self.may_end.wait()
        if self.error:
            raise self.error
        return 1024

    async def close(self) -> None:
        self.closed = True


def job_config(folder: Path, *, rank: int | None = 1, size: int = 2, **variables: Any) -> config.JobConfig:
    """Return the configuration of one member of a job with a volume. The name of its pod is pod-<rank>."""
    given = {
        "JOB_NAME": "job",
        "JOB_PATH": str(folder),
        "CONF_PADDLE_GRADIENT_NUM": str(size),
        "POD_NAME": f"pod-{rank or 0}",
        "POD_IP": "127.0.0.1",
        "POD_UID": f"uid-{rank or 0}",
        "LAUNCHER_JOB_ID": IDENTITY,
        "LAUNCHER_WORKDIR": str(folder),
        "LAUNCHER_TERMINATION_LOG": str(folder / "termination"),
        **({} if rank is None else {"LAUNCHER_RANK": str(rank)}),
        **variables,
    }
    return replace(config.read(given, {}, check_here=False), training_address="127.0.0.1")


def roster(size: int, *known: Member) -> Roster:
    """Return a roster. The members that are not known have the names pod-<rank>."""
    members = [Member(f"pod-{rank}", f"uid-{rank}", "127.0.0.1", "127.0.0.1", rank) for rank in range(size)]
    for member in known:
        members[member.rank or 0] = member
    return Roster(tuple(members))


def joined(job: config.JobConfig, rank: int) -> Joined:
    """Return a complete gang, as the join returns it."""
    record = Record(job.output, IDENTITY)
    record.open()
    me = Member(f"pod-{rank}", f"uid-{rank}", "127.0.0.1", "127.0.0.1", rank, trainers=job.trainers_per_node)
    peers = [replace(other, trainers=job.trainers_per_node) for other in roster(job.members).members]
    return Joined(roster(job.members, *peers, me), rank, "gang-1", record, record.history(job.shape))


class SpyNode(Node):
    """A node that keeps the callback for a lost lease."""

    lose_lease: Callable[[Cause], None]

    def join(self, joined: Joined, settings: GangSettings, lose_lease: Callable[[Cause], None]) -> None:
        self.lose_lease = lose_lease
        super().join(joined, settings, lose_lease)


@dataclass
class Pod:
    """One launcher of a job, from its node to its sessions, with everything that it makes."""

    config: config.JobConfig
    command: Sequence[str] = ()
    flags: Sequence[str] = ()
    gangs: list[FakeGang] = field(default_factory=list)
    supervisors: list[FakeSupervisor] = field(default_factory=list)
    finders: list[FakeFinder] = field(default_factory=list)
    staging: FakeStaging = field(default_factory=FakeStaging)
    may_join: bool = True  # for gangs that will be made
    tasks: list[asyncio.Future[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node = SpyNode(self.config, self.flags, self.command)
        self.signals = Signals()
        self.factories = Factories(
            page=None,
            supervisor=cast(Any, self._supervisor),
            finder=self._finder,
            staging=cast(Any, lambda *_: self.staging),
        )

    @property
    def gang(self) -> FakeGang:
        """The gang of the latest session."""
        return self.gangs[-1]

    @property
    def supervisor(self) -> FakeSupervisor:
        """The supervisor of the latest attempt."""
        return self.supervisors[-1]

    def session(self, after: Cause | None = None) -> Session:
        return Session(self.config, self.command, self.node, self.signals, None, self.factories, after)

    def begin(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run this as a task that ends with the test."""
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    async def joins(self) -> tuple[Session, asyncio.Future[Any]]:
        """Begin the first session. Return it, with its run, when this member has joined and copied its files."""
        session = self.session()
        running = self.begin(session.run())
        await until(lambda: session.joined and self.node.staged.is_set(), "it joins and copies")
        return session, running

    async def begins(self, attempt: int = 0) -> None:
        """Let the hub begin an attempt, and wait until the member has started its servers."""
        self.gang.tell(Begin(attempt, Start(attempt, None)))
        await until(lambda: self.supervisor.logs and self.supervisor.started, "it begins")

    async def trains(self, attempt: int = 0) -> None:
        await self.begins(attempt)
        self.gang.tell(Train())
        await until(lambda: "trainer" in self.supervisor.roles, "it trains")

    def sigterm(self) -> None:
        """Send SIGTERM to this launcher."""
        self.signals.watch([signal.SIGTERM])

    def fake_gang(self, *args: Any, **more: Any) -> FakeGang:
        self.gangs.append(FakeGang(*args, **more))
        if not self.may_join:
            self.gang.may_join.clear()
        return self.gang

    def _supervisor(self, *args: Any, **more: Any) -> FakeSupervisor:
        self.supervisors.append(FakeSupervisor(*args, **more))
        return self.supervisor

    def _finder(self, settings: FinderSettings) -> Finder:
        self.finders.append(FakeFinder(settings))
        return self.finders[-1]


def pod_of(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    rank: int | None = 1,
    size: int = 2,
    command: Sequence[str] = (),
    flags: Sequence[str] = (),
    **variables: Any,
) -> Pod:
    """Return a pod whose sessions have fake gangs. By default it is not the hub, and its server starts early."""
    pod = Pod(job_config(folder, rank=rank, size=size, **variables), command, flags)
    monkeypatch.setattr(session_module, "Gang", pod.fake_gang)
    return pod


def node_of(folder: Path, rank: int, **variables: Any) -> Node:
    """Return the node of a member that has joined."""
    job = job_config(folder, rank=rank, **variables)
    node = Node(job, (), ())
    node.join(joined(job, rank), SETTINGS, lambda cause: None)
    return node
