"""The data types that all packages share: frozen dataclasses and enums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

BOTH, TRAINER, PSERVER, HETER = "both", "trainer", "pserver", "heter"
ROLES = (TRAINER, PSERVER, HETER)  # of a job with roles, in the order of their ranks
TRAINS = (BOTH, TRAINER)  # the roles of members that run trainers
# The variable that sets the number of pods of each role.
COUNT_VARIABLE = {
    BOTH: "CONF_PADDLE_GRADIENT_NUM",
    TRAINER: "CONF_PADDLE_GRADIENT_NUM",
    PSERVER: "LAUNCHER_PSERVERS",
    HETER: "LAUNCHER_HETERS",
}


@dataclass(frozen=True)
class Shape:
    """The number of members of a job, by role.

    The ranks of trainers come first. The ranks of members that run only a server follow, then those of heter workers.
    """

    trainers: int
    pservers: int = 0  # 0: the job has no roles, so each member is BOTH
    heters: int = 0

    @staticmethod
    def of(members: Iterable[Member]) -> Shape:
        """Return the shape of a gang with these members."""
        counts = Counter(member.role for member in members)
        pservers, heters = counts[PSERVER], counts[HETER]
        return Shape(sum(counts.values()) - pservers - heters, pservers, heters)

    @property
    def size(self) -> int:
        """The number of members, over all roles."""
        return self.trainers + self.pservers + self.heters

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that have members, in the order of their ranks. Only BOTH if the job has no roles."""
        return tuple(role for role in ROLES if self.count(role)) if self.pservers else (BOTH,)

    def count(self, role: str) -> int:
        """Return the number of members of one role."""
        return {PSERVER: self.pservers, HETER: self.heters}.get(role, self.trainers)

    def rank(self, role: str, number: int) -> int:
        """Return the rank of the member with this number. Numbers start at 0 in each role."""
        return number + {PSERVER: self.trainers, HETER: self.trainers + self.pservers}.get(role, 0)

    def role(self, rank: int) -> str:
        """Return the role of the member with this rank."""
        if not self.pservers:
            return BOTH
        if rank < self.trainers:
            return TRAINER
        return PSERVER if rank < self.trainers + self.pservers else HETER

    def number(self, rank: int) -> int:
        """Return the number that the member with this rank has within its role. Numbers start at 0 in each role."""
        return rank - self.rank(self.role(rank), 0)

    def name(self, rank: int) -> str:
        """Return the name of the member with this rank, as messages show it."""
        return member_name(self.role(rank), self.number(rank))

    def names(self, ranks: Sequence[int]) -> str:
        """Return the names of several members: `rank 1, 2`, or `trainer 1, pserver 0`."""
        if not self.pservers:
            return member_name(BOTH, ", ".join(map(str, ranks)))
        return ", ".join(map(self.name, ranks))


def member_name(role: str, number: object) -> str:
    """Return `rank 1` in a job without roles, else `trainer 1`, `pserver 0` or `heter worker 0`."""
    return f"{role_name(role)} {number}"


def role_name(role: str) -> str:
    """Return how messages call a member of this role."""
    return {BOTH: "rank", HETER: "heter worker"}.get(role, role)


def role_order(role: str) -> int:
    """Return the place of a role in the order of ranks. A role that is not known comes last."""
    return 0 if role == BOTH else ROLES.index(role) if role in ROLES else len(ROLES)


def member_folder(role: str, number: object) -> str:
    """Return the name of the folder for the member's logs and status, below the job's `output`."""
    return f"{role if role in (PSERVER, HETER) else 'node'}_{number}"


@dataclass(frozen=True)
class Member:
    """One pod and its launcher.

    address: where the gang sends messages; the order of addresses can also be the order of ranks
    training_address: the address that Paddle uses
    controller: with roles, the identity of this role's pods; else empty
    stage: the part of the net that a heter worker computes, 2 or more; 0 for all other members
    """

    pod: str
    uid: str
    address: str
    training_address: str
    rank: int | None = None
    role: str = BOTH
    trainers: int = 1  # how many trainer processes the member runs
    controller: str = ""
    stage: int = 0


@dataclass(frozen=True)
class Roster:
    """The members in rank order: members[i].rank is i, and member 0 is the hub."""

    members: tuple[Member, ...]

    @property
    def shape(self) -> Shape:
        """The number of members of the gang, by role. The configuration of this member may say something else."""
        return Shape.of(self.members)


@dataclass(frozen=True)
class Share:
    """Which shards the trainers of one member read, in an elastic job.

    first: the number of the member's first trainer
    trainers: the number of trainers of the gang
    shards: the number of shards of the job, 0 without a volume
    """

    first: int
    trainers: int
    shards: int = 0


@dataclass(frozen=True)
class ProcessState:
    """What one process of a member does.

    role: "trainer", "pserver" or "heter"; for other processes of the job a text such as "child of a trainer"
    where: the place in the user's program, such as "all_reduce, train.py:57"; without Python stacks: its state
    frame: the innermost Python frame, or ""
    quiet: for how many seconds its trainer or server has printed nothing
    count: how many processes of this role are at this place
    """

    role: str
    where: str
    frame: str
    quiet: float
    count: int = 1


@dataclass(frozen=True)
class MemberReport:
    """What one member does. `processes` counts all its processes, and `states` has the most important ones."""

    phase: str
    processes: int
    states: tuple[ProcessState, ...]
    written: bool = True  # False if the evidence could not be written to a file


@dataclass(frozen=True)
class Peers:
    """What a finder returns: all that a member must know to join the gang.

    hub: the address of the hub, or None if this member is the hub
    identity: the identity of the job, or None if the finder does not know it
    rank: the rank of this member, or None if its pod has no number
    lower: in an elastic job, the addresses of the members that come before this one, in their order. The first one that
        is there leads the gang
    """

    me: Member
    hub: str | None
    identity: str | None
    rank: int | None
    lower: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """One process of a plan.

    The process serves as soon as it listens on all `ports`. If the process ends before that, the launcher starts it
    again. The launcher starts it at most `tries` times, including the first time.
    """

    role: str  # "pserver", "trainer" or "heter"
    argv: tuple[str, ...]
    env: Mapping[str, str]  # the whole environment of the process
    cwd: str
    log: str  # file name in the member's folder on the volume
    echo: bool = False  # copy the output of the process to the launcher's standard output
    ports: tuple[int, ...] = ()
    tries: int = 1
    pass_mark: bytes = b""  # the bytes before the pass number, in the line that reports the end of a pass
    may_finish: bool = False  # a server that may end with 0 shortly before all members have finished training


@dataclass(frozen=True)
class Start:
    """Where a generation starts. All members start at the same place.

    generation: the number of the generation, starting at 0
    resume: the number of the newest complete pass, or None to start from the beginning
    trainers_before: how many members trained in the generation before, or None if there was none
    """

    generation: int
    resume: int | None
    trainers_before: int | None = None


FIRST = Start(0, None)


@dataclass(frozen=True)
class Saves:
    """Where trainers save their passes. Every member sees this folder, and the next generation resumes from it.

    every_pass: the trainers save each pass, so a pass that is finished and not saved is no progress
    of_v0: a pass has one file per parameter, as Paddle v0 writes them: none of these files is empty
    named: all paths on the command line. A pass that the command line names is never moved, and is no pass of this job
    """

    folder: str
    first: int = 0  # the number of the first pass
    wanted: int | None = None  # the total number of passes; None: only the training program knows it
    every_pass: bool = True
    of_v0: bool = False
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The processes that one member runs. Servers start first. Trainers start once the servers of all members listen.

    servers: the pserver of the member, or its heter worker, which serves trainers, too

    shows_passes: the trainers log the end of each pass
    early: the servers need neither the roster nor copied files, so the launcher can start them before its first join.
        If false, the servers start when this member has the roster and has copied its files.
    leads: this member's first trainer starts before all other trainers of the job. The other trainers start when this
        trainer listens on its `ports`, or after a time limit.
    """

    servers: tuple[Process, ...]
    trainers: tuple[Process, ...]
    shows_passes: bool = True
    early: bool = True
    leads: bool = False


class CauseKind(str, Enum):
    """What kind of event ended an attempt. The values are part of the gang protocol and of the files on the volume."""

    TRAINER = "trainer"  # a trainer process died
    PSERVER = "pserver"  # a pserver process died
    HETER = "heter"  # a heter worker's process died
    STALLED = "stalled"  # no trainer has printed anything for too long
    PEERS = "peers"  # the members did not find each other, or did not join
    STAGING = "staging"  # the configuration or the shard could not be copied
    PLAN = "plan"  # the launcher could not decide which processes to run
    VOLUME = "volume"  # the volume has a fault, or does not answer
    TAKEN_OVER = "taken over"  # another gang holds the lease of the output folder
    STOPPED = "stopped"  # a launcher received SIGTERM
    LOST = "lost"  # a launcher has ended without a message, or has stopped sending messages
    RESIZED = "resized"  # the job grows: all processes start again, with the members that have waited
    LAUNCHER = "launcher"  # a fault of the launcher itself

    __str__ = str.__str__  # str() and f-strings return the value; an f-string needs this since Python 3.11

    @property
    def is_child(self) -> bool:
        """Whether a process of the plan has died."""
        return self in (CauseKind.TRAINER, CauseKind.PSERVER, CauseKind.HETER)

    @property
    def restartable(self) -> bool:
        """Whether the same pods may start the processes again after this cause."""
        return self.is_child or self in (CauseKind.STALLED, CauseKind.VOLUME)

    @property
    def gone(self) -> bool:
        """Whether the member at fault is no longer there."""
        return self in (CauseKind.LOST, CauseKind.STOPPED)

    @property
    def planned(self) -> bool:
        """Whether this end was asked for. Then it is no failure, and does not count as an attempt."""
        return self in (CauseKind.STOPPED, CauseKind.RESIZED)


@dataclass(frozen=True)
class Cause:
    """Why an attempt ended. The first cause is reported as the cause of the job.

    rank: the rank of the member at fault, or None if no single member is at fault
    code: the exit code of the dead process (128 + n for signal n); for any other cause, a code of the launcher
    """

    kind: CauseKind
    rank: int | None
    pod: str
    what: str  # one sentence: what happened, where, and what the user can do
    code: int
    tail: tuple[str, ...] = field(default=())  # last lines of the dead child's log
    final: bool = False  # the job is given up: a new pod must not try again
    silent: bool = False  # the lost member was only silent: its processes may still run behind a network cut


@dataclass(frozen=True)
class Outcome:
    """How this launcher ends.

    cause: the first cause, or None if the job is complete
    text: the sentence for the termination message
    """

    code: int
    cause: Cause | None
    text: str

    @property
    def job_code(self) -> int:
        """The exit code of the job: the code of the first cause, or the launcher's code if there is no cause."""
        return int(self.cause.code if self.cause else self.code)


@dataclass(frozen=True)
class Numbers:
    """The newest numbers that a trainer has printed (docs/numbers.md). None: not printed so far.

    pass_number: as the program counts. If `passes` is known, the first pass is 1
    step: of the whole training, or of the pass if `pass_steps` is known
    loss: may be infinite, or NaN if the training has diverged
    accuracy, test_accuracy: as printed, or 1 minus the classification error of Paddle v0
    test_loss, test_accuracy: measured on examples that are not used for training
    """

    pass_number: int | None = None
    passes: int | None = None  # of the whole training
    step: int | None = None
    steps: int | None = None  # of the whole training
    pass_steps: int | None = None  # of one pass
    loss: float | None = None
    accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    examples_per_second: float | None = None


@dataclass(frozen=True)
class Snapshot:
    """What a member knows about itself at one moment.

    size: how many members the gang has, or None before the join
    restarts: how often this launcher has restarted its processes, not counting changes of size
    output_age: seconds since a trainer of this member printed something, or None
    peers: the number of other members to which this launcher is connected
    lease_age: seconds since this launcher has renewed the lease of the output folder, or None if it has no lease
    """

    phase: str
    since: str
    generation: int | None
    size: int | None
    restarts: int
    last_pass: int | None
    output_age: float | None
    peers: int
    lease_age: float | None
    outcome: Outcome | None


def describe_cause(cause: Cause, shape: Shape) -> str:
    """Return a sentence that says what happened. It begins with the name of the member at fault, if there is one."""
    return f"{'' if cause.rank is None else name_and_pod(shape.name(cause.rank), cause.pod)}{cause.what}"


def name_and_pod(name: str, pod: object) -> str:
    """Return the beginning of a sentence about one member, such as `rank 1 (<pod>): `."""
    return f"{name} ({pod}): "
