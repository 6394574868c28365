"""What the files on the volume say about a job, as data. Times are seconds since 1970, in UTC."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from launcher.model import BOTH, ROLES, CauseKind, member_folder, member_name
from launcher.store import sizes

WAITING, STAGING, STARTING, TRAINING = "waiting", "staging", "starting", "training"
SERVING, FINISHED, RESTARTING, ENDING, LOST = "serving", "finished", "restarting", "ending", "lost"
STATES = (WAITING, STAGING, STARTING, TRAINING, SERVING, FINISHED, RESTARTING, ENDING, LOST)  # of a member, in a lane

_AFTER_STOP = 60.0  # seconds: more members may be told to stop while the first one ends


class Place(NamedTuple):
    """A member of the job: its role, and its number within that role. The order of places is the order of ranks."""

    order: int  # of its role: 0 for members that train
    number: int

    @staticmethod
    def of(role: object, number: int) -> Place:
        return Place(ROLES.index(role) if role in ROLES else 0, number)

    @property
    def role(self) -> str:
        """The role. That of a member of a job without roles is "trainer", too."""
        return ROLES[self.order]

    @property
    def folder(self) -> str:
        return member_folder(self.role, self.number)


@dataclass(frozen=True)
class FirstCause:
    """Why a generation, or the job, has ended. `rank` counts within the role."""

    kind: str
    role: str | None
    rank: int | None
    pod: str
    what: str
    code: int | None = None
    tail: tuple[str, ...] = ()
    final: bool = False

    @property
    def place(self) -> Place | None:
        return None if self.rank is None else Place.of(self.role, self.rank)

    @property
    def member(self) -> str:
        """`rank 1 (pod x)`, or "" if no single member is at fault."""
        if self.rank is None:
            return f"pod {self.pod}" if self.pod else ""
        name = member_name(self.role or BOTH, self.rank)
        return f"{name} (pod {self.pod})" if self.pod else name

    @property
    def sentence(self) -> str:
        """One sentence that says what happened, and names the member at fault."""
        # No member is at fault. If a member waited in vain, the text names who is missing.
        if self.kind in (CauseKind.PEERS, CauseKind.RESIZED):
            return self.what
        return f"{self.member}: {self.what}" if self.member not in self.what else self.what


@dataclass
class Generation:
    """One start of all processes. `ended`: None while it runs, or if its end was never written.

    size: how many trainers it had, or None if that is not known
    is_resize: it has ended because the job changed its size, which is no failure
    """

    number: int
    began: float
    ended: float | None = None
    after_pass: int | None = None
    cause: FirstCause | None = None
    training_from: float | None = None  # when its first trainer began to train
    size: int | None = None
    is_resize: bool = False


@dataclass
class PassDone:
    """A finished pass of one generation. Numbers are None where no log line had them."""

    generation: int
    number: int
    at: float
    loss: float | None = None
    accuracy: float | None = None
    speed: float | None = None  # examples per second, over all trainers


class Sample(NamedTuple):
    """Numbers that a trainer has printed. NaN and infinity are possible: the training has diverged."""

    at: float
    loss: float | None
    accuracy: float | None
    speed: float | None


class Span(NamedTuple):
    """A time in which a member was in one state."""

    state: str
    begin: float
    end: float


class Death(NamedTuple):
    """A process that has failed."""

    at: float
    process: str
    exit_code: int
    out_of_memory: str
    tail: tuple[str, ...]
    generation: int | None


@dataclass
class Run:
    """One launcher of a member, from its first event to its last one.

    state: the state at its last event, which began at `since`
    exit_code: None while it runs, or if it ended without writing an exit code
    """

    begin: float
    last: float
    pod: str = ""
    uid: str = ""
    spans: list[Span] = field(default_factory=list)
    phase: str = ""
    state: str = WAITING
    since: float = 0.0
    exit_code: int | None = None
    ended: float | None = None
    cause: FirstCause | None = None


@dataclass
class Member:
    place: Place
    role: str = BOTH
    pod: str = ""
    runs: list[Run] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    warnings: dict[str, tuple[int, float]] = field(default_factory=dict)  # text -> how often, first time
    stops: list[float] = field(default_factory=list)  # when its launcher got SIGTERM
    last_pass: int | None = None
    generation: int | None = None
    copied: int | None = None  # bytes
    is_current: bool = True  # a member of the latest gang

    @property
    def name(self) -> str:
        return member_name(self.role, self.place.number)

    @property
    def run(self) -> Run | None:
        """The latest launcher."""
        return self.runs[-1] if self.runs else None

    @property
    def full_name(self) -> str:
        return f"{self.name} (pod {self.pod})" if self.pod else self.name


@dataclass(frozen=True)
class PeerChange:
    """The hub has lost the connection to a member, or this member has connected again."""

    at: float
    place: Place
    pod: str
    is_lost: bool
    why: str


@dataclass(frozen=True)
class Lease:
    """The lease of the output folder. `age`: seconds since it was renewed or released."""

    is_released: bool
    age: float


@dataclass
class Facts:
    """All facts in the files of a job.

    gangs: when each gang was complete
    ends: time, exit code and first cause of the end of each gang
    is_ended: the hub has written the end of the latest gang
    unjoined: time, exit code and cause of a pod that ended before a gang formed, after all gangs
    saved: the newest whole pass on the volume
    unread: one sentence per problem with a file
    """

    name: str
    folder: str
    now: float
    gangs: list[float] = field(default_factory=list)
    hub: str = ""
    members: dict[Place, Member] = field(default_factory=dict)
    generations: dict[int, Generation] = field(default_factory=dict)
    passes: dict[tuple[int, int], PassDone] = field(default_factory=dict)
    peers: list[PeerChange] = field(default_factory=list)
    ends: list[tuple[float, int, FirstCause | None]] = field(default_factory=list)
    is_ended: bool = False
    unjoined: tuple[float, int, FirstCause] | None = None
    saved: int | None = None
    lease: Lease | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def begin(self) -> float:
        """The time at which the first launcher began."""
        begins = [run.begin for member in self.members.values() for run in member.runs]
        generations = (generation.began for generation in self.generations.values())
        return min([*begins, *self.gangs[:1]], default=min(generations, default=self.now))

    @property
    def last(self) -> float:
        """The time of the newest event."""
        return max(self.latest, default=self.now)

    @property
    def latest(self) -> list[float]:
        """The times of the newest events of all launchers."""
        times = [run.last for member in self.members.values() for run in member.runs]
        return [*times, *self.gangs[-1:], *(end[0] for end in self.ends[-1:])]

    @property
    def history(self) -> list[Generation]:
        return [self.generations[number] for number in sorted(self.generations)]

    @property
    def has_resized(self) -> bool:
        """Whether two generations had different sizes."""
        return sizes.vary([generation.size for generation in self.history])

    def resizes_after(self, stop: float) -> bool:
        """Return whether the job became smaller because of a SIGTERM at this time."""
        ran = [each for each in self.history if each.began <= stop]
        return bool(ran) and ran[-1].is_resize and stop <= (ran[-1].ended or stop) + _AFTER_STOP

    @property
    def latest_failure(self) -> FirstCause | None:
        """The first cause of the latest generation that has failed."""
        return next((each.cause for each in reversed(self.history) if each.cause and not each.is_resize), None)

    @property
    def end(self) -> tuple[float, int, FirstCause | None] | None:
        """Time, exit code and first cause of the end of the latest gang; None if its hub has written no end."""
        return self.ends[-1] if self.ends and self.is_ended else None


def finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
