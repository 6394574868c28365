"""Schedules: what may happen to a gang in simulated time. Hypothesis draws them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from launcher.model import CauseKind

_CHILDREN = (CauseKind.PSERVER, CauseKind.TRAINER)
SLOW_MARK = 11.0  # seconds to write the mark of completion: longer than the gang waits


@dataclass(frozen=True)
class Pace:
    """How long the launcher of a member takes for each step, in seconds."""

    starts: float = 0.0
    stages: float = 0.0
    serves: float = 0.0
    early: bool = False  # its servers start before the first Begin
    trains: float = 0.0
    ends: float = 0.0


@dataclass(frozen=True)
class Fault:
    """A fault `after` seconds from the one before, at the member of this rank (modulo the size)."""

    after: float
    rank: int


@dataclass(frozen=True)
class Death(Fault):
    """A process dies, and its launcher notices this `later`. If it does not run yet, it dies `after` its start."""

    kind: str
    code: int
    later: float


@dataclass(frozen=True)
class Told(Fault):
    """The launcher gets SIGTERM."""


@dataclass(frozen=True)
class Broken(Fault):
    """Staging fails."""


@dataclass(frozen=True)
class Cut(Fault):
    """The member's connections to the hub end, and it cannot connect for a while. Rank 0: all connections."""

    later: float
    away: float


@dataclass(frozen=True)
class Silence(Fault):
    """Nothing arrives from the member (up), or at it (down). Rank 0: between all members and the hub."""

    up: bool
    down: bool
    seconds: float


@dataclass(frozen=True)
class Apart(Fault):
    """A member and the next one cannot reach each other, but both reach the hub. Neither of them is the hub."""

    seconds: float

    def pair(self, size: int) -> tuple[int, int] | None:
        """Return the ranks of both members in a gang of this size, or None if the gang is too small."""
        first = 1 + self.rank % (size - 2) if size > 2 else 0
        return (first, first + 1) if first else None


@dataclass(frozen=True)
class Freeze(Fault):
    """The launcher is stopped for a while, and its node is not."""

    seconds: float


@dataclass(frozen=True)
class Killed(Fault):
    """The launcher is killed by SIGKILL."""


@dataclass(frozen=True)
class Off(Fault):
    """The node is switched off."""


@dataclass(frozen=True)
class Rival(Fault):
    """Another gang of this job claims the next generation. This gang does not notice the claim."""


DISTURBING = (Cut, Silence, Freeze, Killed, Off)


@dataclass(frozen=True)
class Schedule:
    """A whole schedule. A list that is too short is used again from its beginning."""

    size: int = 3
    delays: tuple[float, ...] = (0.0,)
    paces: tuple[Pace, ...] = (Pace(),)
    faults: tuple[Fault, ...] = ()
    restarts: int = 1
    rejoins: bool = False
    prepares: float = 0.0
    stubborn: bool = False  # a start is prepared even if it was cancelled
    refuses: int | None = None  # the number of the start that is refused
    marks: float = 0.0
    mark_fails: bool = False
    flawed: int = 0  # how often the last pass is not whole, so that all members must train again
    passes: float = 0.0  # seconds that trainer 0 takes for a pass; 0: it completes no pass
    saves: bool = False  # passes are saved, and the next generation resumes after the last one


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
    trains=st.sampled_from((0.0, 0.1, 0.5, 2.0, 2.0, 6.0, 6.0, 60.0)),
    ends=st.sampled_from((0.0, 0.05, 0.05, 0.3, 0.3, 1.0, 1.0, 4.0, 21.0)),
)
CODES = st.sampled_from((1, 134, 137, 139, 141))
LONG = st.sampled_from((0.3, 1.0, 3.0, 20.0, 60.0))
NEARLY_LOST = 28.0  # seconds; a little less than the silence after which a member is lost


def some_fault() -> st.SearchStrategy[Fault]:
    """Draw deaths of processes most often: a gang survives them, so that more can happen to it."""
    deaths = [
        st.builds(
            Death,
            AFTER,
            RANKS,
            st.sampled_from(_CHILDREN),
            CODES,
            st.sampled_from((0.0, 0.05, 0.2)),
        )
        for _ in range(10)
    ]
    cuts = [st.builds(Cut, AFTER, RANKS, SHORT, st.sampled_from((0.0, 0.1, 0.4, 0.9, 1.1, 3.0))) for _ in range(4)]
    silence = st.builds(Silence, AFTER, RANKS, st.booleans(), st.booleans(), LONG)
    apart = st.builds(Apart, AFTER, RANKS, st.sampled_from((3.0, 20.0, 45.0, 100.0)))
    freeze = st.builds(Freeze, AFTER, RANKS, st.one_of(LONG, st.just(NEARLY_LOST)))
    ends = [st.builds(kind, LATER, RANKS) for kind in (Told, Broken, Killed, Off, Rival)]
    return st.one_of(*deaths, *cuts, silence, apart, freeze, *ends)


SCHEDULED = st.builds(
    Schedule,
    size=st.integers(3, 5),
    delays=st.lists(st.sampled_from((0.0, 0.001, 0.01, 0.05, 0.2)), min_size=1, max_size=6).map(tuple),
    paces=st.lists(PACES, min_size=1, max_size=5).map(tuple),
    faults=st.lists(some_fault(), min_size=1, max_size=8).map(tuple),
    restarts=st.sampled_from((3, 6, 2, 1, 0)),
    rejoins=st.booleans(),
    prepares=WHILE,
    stubborn=st.booleans(),
    refuses=st.sampled_from((None, None, None, None, 0, 1, 2)),
    marks=st.sampled_from((0.0, 0.1, 3.0, SLOW_MARK)),
    mark_fails=st.booleans(),
    flawed=st.sampled_from((0, 0, 0, 1, 2)),
    passes=st.sampled_from((0.0, 0.0, 0.1, 1.0)),
    saves=st.booleans(),
)
