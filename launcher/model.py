"""The words of the project as data: frozen, and known to every room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

BOTH, TRAINER, PSERVER = "both", "trainer", "pserver"
OTHER_ROLE = {TRAINER: PSERVER, PSERVER: TRAINER}


@dataclass(frozen=True)
class Shape:
    """How many members a job has: those that train, and those that only serve. Trainers have the first ranks."""

    trainers: int
    pservers: int = 0  # 0: there are no roles, each member does both

    @property
    def size(self) -> int:
        """All members."""
        return self.trainers + self.pservers

    def count(self, role: str) -> int:
        """The members of one role."""
        return self.pservers if role == PSERVER else self.trainers

    def rank(self, role: str, number: int) -> int:
        """The rank in the gang of a member with this number within its role."""
        return self.trainers + number if role == PSERVER else number

    def role(self, rank: int) -> str:
        """What the member with this rank does."""
        if not self.pservers:
            return BOTH
        return TRAINER if rank < self.trainers else PSERVER

    def number(self, rank: int) -> int:
        """The member's number within its role."""
        return rank if rank < self.trainers or not self.pservers else rank - self.trainers

    def name(self, rank: int) -> str:
        """The member with this rank, for people."""
        return member_name(self.role(rank), self.number(rank))

    def names(self, ranks: Sequence[int]) -> str:
        """Several members: `rank 1, 2`, or `trainer 1, pserver 0`."""
        if not self.pservers:
            return member_name(BOTH, ", ".join(map(str, ranks)))
        return ", ".join(map(self.name, ranks))


def member_name(role: str, number: object) -> str:
    """`rank 1` where all do the same, else `trainer 1` or `pserver 0`."""
    return f"{'rank' if role == BOTH else role} {number}"


def member_folder(role: str, number: object) -> str:
    """Where the member's logs and status go, below the job's output."""
    return f"{'pserver' if role == PSERVER else 'node'}_{number}"


@dataclass(frozen=True)
class Member:
    """One pod and its launcher. `address` is for gang and sorting, `training_address` is what Paddle is told."""

    pod: str
    uid: str
    address: str
    training_address: str
    rank: int | None = None
    role: str = BOTH
    trainers: int = 1  # that it runs
    controller: str = ""  # where each role has one of its own: its identity


@dataclass(frozen=True)
class Roster:
    """The members in rank order: members[i].rank is i, and member 0 is the hub."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Peers:
    """What finding peers gives: enough to join. `hub` is where the hub listens, or None when this member is the hub.

    `identity` is the job's, as far as the way of finding knows it; `rank` is the own number where pods have numbers.
    """

    me: Member
    hub: str | None
    identity: str | None
    rank: int | None


@dataclass(frozen=True)
class Process:
    """One process of a plan. It serves once all its `ports` listen; `tries` are for deaths before that."""

    role: str  # "pserver" or "trainer"
    argv: tuple[str, ...]
    env: Mapping[str, str]  # the whole environment of the process
    cwd: str
    log: str  # file name in the member's folder on the volume
    echo: bool = False  # its lines also go to the launcher's standard output
    ports: tuple[int, ...] = ()
    tries: int = 1
    pass_mark: bytes = b""  # the bytes before a pass number in its log, at the end of each pass
    may_finish: bool = False  # a server that may end with 0 by itself, shortly before all have trained


@dataclass(frozen=True)
class Start:
    """A start of the job's processes, the same for all members. `resume`: the last whole pass; None: there is none."""

    generation: int
    resume: int | None


FIRST = Start(0, None)


@dataclass(frozen=True)
class Saves:
    """Where trainers save their passes, as far as every member sees it: a further generation goes on from there."""

    folder: str
    first: int = 0  # the number of the first pass
    wanted: int | None = None  # how many passes there are to be; None: only the program knows


@dataclass(frozen=True)
class Plan:
    """The processes that one member runs: servers first, trainers once the whole gang serves.

    shows_passes: whatever its trainers do, they log the end of each pass
    early: its servers need no roster, and start before there is one; else they wait for it and for what is copied
    leads: its first trainer starts before all others, which wait until its `ports` listen
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
    LOST = "lost"  # a launcher ended without a message, or cannot be heard
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
    """Why a job ended before it was complete. The first one is the job's; `rank` None means nobody in particular.

    code: the dead child's own exit code (128 + n for signal n), or the exit code that the launcher found
    """

    kind: CauseKind
    rank: int | None
    pod: str
    what: str  # one sentence: what happened, where, and what to do if something can be done
    code: int
    tail: tuple[str, ...] = field(default=())  # last lines of the dead child's log
    final: bool = False  # the job is given up: nobody should try again
    silent: bool = False  # of a lost one: nothing was heard of it, so that it may still be there, beyond a cut


@dataclass(frozen=True)
class Outcome:
    """How it ended here: the exit code of this launcher, and the first cause unless the job is complete."""

    code: int
    cause: Cause | None
    text: str

    @property
    def job_code(self) -> int:
        """The exit code of the job: that of the first cause, whoever's it was."""
        return int(self.cause.code if self.cause else self.code)


def describe_cause(cause: Cause, shape: Shape) -> str:
    """In a sentence: whose it was, and what happened."""
    return f"{'' if cause.rank is None else name_and_pod(shape.name(cause.rank), cause.pod)}{cause.what}"


def name_and_pod(name: str, pod: object) -> str:
    """The beginning of a sentence about a cause that is somebody's in particular."""
    return f"{name} ({pod}): "
