"""The data types that all packages share: frozen dataclasses and enums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

BOTH, TRAINER, PSERVER = "both", "trainer", "pserver"
OTHER_ROLE = {TRAINER: PSERVER, PSERVER: TRAINER}


@dataclass(frozen=True)
class Shape:
    """How many members a job has. Members that run only a server have the ranks after the trainers."""

    trainers: int
    pservers: int = 0  # 0: the job has no roles, and each member trains and serves

    @property
    def size(self) -> int:
        """The number of members, over both roles."""
        return self.trainers + self.pservers

    def count(self, role: str) -> int:
        """Return the number of members of one role."""
        return self.pservers if role == PSERVER else self.trainers

    def rank(self, role: str, number: int) -> int:
        """Return the rank of the member with this number. Numbers start at 0 in each role."""
        return self.trainers + number if role == PSERVER else number

    def role(self, rank: int) -> str:
        """Return the role of the member with this rank."""
        if not self.pservers:
            return BOTH
        return TRAINER if rank < self.trainers else PSERVER

    def number(self, rank: int) -> int:
        """Return the number, within its role, of the member with this rank. Numbers start at 0."""
        return rank if rank < self.trainers or not self.pservers else rank - self.trainers

    def name(self, rank: int) -> str:
        """Return the name of the member with this rank, as users read it."""
        return member_name(self.role(rank), self.number(rank))

    def names(self, ranks: Sequence[int]) -> str:
        """Return the names of several members: `rank 1, 2`, or `trainer 1, pserver 0`."""
        if not self.pservers:
            return member_name(BOTH, ", ".join(map(str, ranks)))
        return ", ".join(map(self.name, ranks))


def member_name(role: str, number: object) -> str:
    """Return `rank 1` in a job without roles, else `trainer 1` or `pserver 0`."""
    return f"{'rank' if role == BOTH else role} {number}"


def member_folder(role: str, number: object) -> str:
    """Return the folder for the member's logs and status, below the job's output."""
    return f"{'pserver' if role == PSERVER else 'node'}_{number}"


@dataclass(frozen=True)
class Member:
    """One pod and its launcher.

    address: used by the gang, and to sort members
    training_address: used by Paddle
    controller: the identity of the object that controls the pod, if each role has its own controller; else empty
    """

    pod: str
    uid: str
    address: str
    training_address: str
    rank: int | None = None
    role: str = BOTH
    trainers: int = 1  # how many trainer processes it runs
    controller: str = ""


@dataclass(frozen=True)
class Roster:
    """The members in rank order: members[i].rank is i, and member 0 is the hub."""

    members: tuple[Member, ...]

    @property
    def shape(self) -> Shape:
        """How many members the gang has. It need not be what the configuration says."""
        pservers = sum(member.role == PSERVER for member in self.members)
        return Shape(len(self.members) - pservers, pservers)


@dataclass(frozen=True)
class Peers:
    """What a finder returns. It is enough to join the gang.

    hub: the address of the hub, or None if this member is the hub
    identity: the identity of the job, or None if the finder does not know it
    rank: the rank of this member, or None if its pod has no number
    """

    me: Member
    hub: str | None
    identity: str | None
    rank: int | None


@dataclass(frozen=True)
class Process:
    """One process of a plan.

    The process serves as soon as it listens on all `ports`. If the process ends before that, the launcher starts it
    again. `tries` is the maximum number of starts, the first included.
    """

    role: str  # "pserver" or "trainer"
    argv: tuple[str, ...]
    env: Mapping[str, str]  # the whole environment of the process
    cwd: str
    log: str  # file name in the member's folder on the volume
    echo: bool = False  # copy its lines to the launcher's standard output
    ports: tuple[int, ...] = ()
    tries: int = 1
    pass_mark: bytes = b""  # the bytes before the pass number in the line that ends a pass
    may_finish: bool = False  # a server that may end with 0 shortly before all members have finished training


@dataclass(frozen=True)
class Start:
    """Where a generation starts. It is the same for all members.

    generation: the number of the generation, starting at 0
    resume: the number of the newest complete pass, or None to start from the beginning
    """

    generation: int
    resume: int | None


FIRST = Start(0, None)


@dataclass(frozen=True)
class Saves:
    """Where trainers save their passes. Every member sees this folder, and the next generation resumes from it."""

    folder: str
    first: int = 0  # the number of the first pass
    wanted: int | None = None  # the total number of passes; None: only the training program knows it


@dataclass(frozen=True)
class Plan:
    """The processes that one member runs. Servers start first. Trainers start once the servers of all members listen.

    shows_passes: the trainers log the end of each pass
    early: the servers need no roster, so they start before the join. Otherwise they start once this member has the
        roster and has copied its files.
    leads: this member's first trainer starts before all other trainers of the job. The other trainers start when the
        first trainer listens on its `ports`.
    """

    servers: tuple[Process, ...]
    trainers: tuple[Process, ...]
    shows_passes: bool = True
    early: bool = True
    leads: bool = False


class CauseKind(str, Enum):
    """What kind of event ended a job early. The values are part of the gang protocol and of the files on the volume."""

    TRAINER = "trainer"  # a trainer process died
    PSERVER = "pserver"  # a pserver process died
    STALLED = "stalled"  # no trainer has printed anything for too long
    PEERS = "peers"  # the members did not find each other, or did not join
    STAGING = "staging"  # the configuration or the shard could not be copied
    PLAN = "plan"  # the processes could not be planned
    VOLUME = "volume"  # the volume does not answer
    TAKEN_OVER = "taken over"  # another gang holds the lease of the output folder
    STOPPED = "stopped"  # a launcher received SIGTERM
    LOST = "lost"  # a launcher ended without a message, or sends no messages any more
    LAUNCHER = "launcher"  # a fault of the launcher itself

    __str__ = str.__str__  # the value, also in an f-string of Python 3.11 and later

    @property
    def is_child(self) -> bool:
        """Whether a process of the plan has died."""
        return self in (CauseKind.TRAINER, CauseKind.PSERVER)

    @property
    def restartable(self) -> bool:
        """Whether the same pods may start the processes again."""
        return self.is_child or self in (CauseKind.STALLED, CauseKind.VOLUME)

    @property
    def gone(self) -> bool:
        """Whether the member at fault is no longer there."""
        return self in (CauseKind.LOST, CauseKind.STOPPED)


@dataclass(frozen=True)
class Cause:
    """Why an attempt ended. The first cause is reported as the cause of the job.

    rank: the rank of the member at fault, or None if no single member is at fault
    code: the exit code of the dead process (128 + n for signal n); for any other cause, a code of the launcher
    """

    kind: CauseKind
    rank: int | None
    pod: str
    what: str  # one sentence: what happened, where, and what to do if something can be done
    code: int
    tail: tuple[str, ...] = field(default=())  # last lines of the dead child's log
    final: bool = False  # the job is given up: a new pod must not try again
    silent: bool = False  # the lost member has only sent nothing: its processes may still run behind a network cut


@dataclass(frozen=True)
class Outcome:
    """How this launcher ends: its exit code, and the first cause unless the job is complete."""

    code: int
    cause: Cause | None
    text: str

    @property
    def job_code(self) -> int:
        """The exit code of the job: the code of the first cause, or the launcher's code if there is no cause."""
        return int(self.cause.code if self.cause else self.code)


@dataclass(frozen=True)
class Snapshot:
    """What a member knows about itself at one moment.

    size: how many members the gang has, or None before the join
    restarts: how often this launcher has started its processes again
    output_age: seconds since a trainer of this member printed something, or None
    peers: how many other members this launcher is connected to
    holds_lease: this launcher is the hub, and holds the lease of the output folder
    """

    phase: str
    since: str
    generation: int | None
    size: int | None
    restarts: int
    last_pass: int | None
    output_age: float | None
    peers: int
    holds_lease: bool
    outcome: Outcome | None


def describe_cause(cause: Cause, shape: Shape) -> str:
    """Return a sentence that says what happened. If a member is at fault, the sentence begins with its name."""
    return f"{'' if cause.rank is None else name_and_pod(shape.name(cause.rank), cause.pod)}{cause.what}"


def name_and_pod(name: str, pod: object) -> str:
    """Return the beginning of a sentence about one member, such as `rank 1 (<pod>): `."""
    return f"{name} ({pod}): "
