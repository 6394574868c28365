"""What may happen to a gang in simulated time, as hypothesis draws it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from launcher.model import CHILDREN

SLOW_MARK = 6.0  # longer than the gang waits for it


@dataclass(frozen=True)
class Pace:
    """How long a member's launcher takes for everything."""

    starts: float = 0.0
    stages: float = 0.0
    serves: float = 0.0
    early: bool = False  # its servers start before the first Begin
    trains: float = 0.0
    ends: float = 0.0


@dataclass(frozen=True)
class Fault:
    """`after` seconds since the one before, at the member of this rank (modulo the size)."""

    after: float
    rank: int


@dataclass(frozen=True)
class Death(Fault):
    """A child dies, which its launcher notices `later`. One that does not run yet dies so long after its start."""

    kind: str
    code: int
    later: float


@dataclass(frozen=True)
class Told(Fault):
    """SIGTERM to the launcher."""


@dataclass(frozen=True)
class Broken(Fault):
    """Something fails that is no child."""


@dataclass(frozen=True)
class Cut(Fault):
    """The member's connections to the hub end (rank 0: all), and it cannot connect for a while."""

    later: float
    away: float


@dataclass(frozen=True)
class Silence(Fault):
    """Nothing arrives from the member (up), or at it (down). Rank 0: everybody's way to and from the hub."""

    up: bool
    down: bool
    seconds: float


@dataclass(frozen=True)
class Freeze(Fault):
    """The launcher does nothing, and its node does."""

    seconds: float


@dataclass(frozen=True)
class Killed(Fault):
    """The launcher, by SIGKILL."""


@dataclass(frozen=True)
class Off(Fault):
    """The node."""


@dataclass(frozen=True)
class Rival(Fault):
    """Another gang of this job, of which this one knows nothing, claims the next generation."""


DISTURBING = (Cut, Silence, Freeze, Killed, Off)


@dataclass(frozen=True)
class Schedule:
    """Everything that is drawn. What is shorter than needed is used again from its beginning."""

    size: int = 3
    delays: tuple[float, ...] = (0.0,)
    paces: tuple[Pace, ...] = (Pace(),)
    faults: tuple[Fault, ...] = ()
    restarts: int = 1
    gathers: bool = False
    prepares: float = 0.0
    stubborn: bool = False  # a start is settled also when nobody waits for it any more
    refuses: int | None = None  # the start that may not be, by its number
    marks: float = 0.0
    mark_fails: bool = False
    passes: float = 0.0  # seconds after which trainer 0 has done one more pass; 0: it never has
    saves: bool = False  # passes are saved, so that the next generation goes on after them


SHORT = st.sampled_from((0.0, 0.01, 0.05, 0.1, 0.3))
WHILE = st.sampled_from((0.0, 0.05, 0.2, 0.5, 1.0, 3.0))
AFTER = st.sampled_from((0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 1.2, 2.0, 7.0))
LATER = st.sampled_from((0.05, 0.5, 1.0, 2.0, 7.0))
RANKS = st.integers(0, 4)
PACES = st.builds(
    Pace,
    starts=st.sampled_from((0.0, 0.0, 0.05, 0.05, 0.5, 2.0)),
    stages=WHILE,
    serves=WHILE,
    early=st.booleans(),
    trains=st.sampled_from((0.0, 0.1, 0.5, 2.0, 2.0, 6.0, 6.0)),
    ends=st.sampled_from((0.0, 0.05, 0.05, 0.3, 0.3, 1.0, 1.0, 4.0, 21.0)),
)
CODES = st.sampled_from((1, 134, 137, 139, 141))
LONG = st.sampled_from((0.3, 1.0, 3.0, 20.0, 60.0))


def some_fault() -> st.SearchStrategy[Fault]:
    """Deaths of children most of all: a gang survives them, so that more can happen to it."""
    deaths = [
        st.builds(Death, AFTER, RANKS, st.sampled_from(CHILDREN), CODES, st.sampled_from((0.0, 0.05, 0.2)))
        for _ in range(10)
    ]
    cuts = [st.builds(Cut, AFTER, RANKS, SHORT, st.sampled_from((0.0, 0.1, 0.4, 0.9, 1.1, 3.0))) for _ in range(4)]
    silence = st.builds(Silence, AFTER, RANKS, st.booleans(), st.booleans(), LONG)
    freeze = st.builds(Freeze, AFTER, RANKS, LONG)
    ends = [st.builds(kind, LATER, RANKS) for kind in (Told, Broken, Killed, Off, Rival)]
    return st.one_of(*deaths, *cuts, silence, freeze, *ends)


SCHEDULED = st.builds(
    Schedule,
    size=st.integers(3, 5),
    delays=st.lists(st.sampled_from((0.0, 0.001, 0.01, 0.05, 0.2)), min_size=1, max_size=6).map(tuple),
    paces=st.lists(PACES, min_size=1, max_size=5).map(tuple),
    faults=st.lists(some_fault(), min_size=1, max_size=8).map(tuple),
    restarts=st.sampled_from((3, 6, 2, 1, 0)),
    gathers=st.booleans(),
    prepares=WHILE,
    stubborn=st.booleans(),
    refuses=st.sampled_from((None, None, None, None, 0, 1, 2)),
    marks=st.sampled_from((0.0, 0.1, 3.0, SLOW_MARK)),
    mark_fails=st.booleans(),
    passes=st.sampled_from((0.0, 0.0, 0.1, 1.0)),
    saves=st.booleans(),
)
