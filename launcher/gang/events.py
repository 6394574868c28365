"""What the gang's callers see besides `Gang` itself: its settings, its events, and the call to look again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from launcher.model import Cause, Member, Shape, Start

REPORTS = 4  # of progress, at most, in the time that a job may be silent: each tells of what was printed since the last


@dataclass(frozen=True)
class GangSettings:
    """How big the gang is, where it listens, and how long everything may take, in seconds."""

    size: int
    port: int
    listen: tuple[str, ...] | None = None  # addresses; None is all of them, IPv4 and IPv6
    alive_every: float = 5.0
    silence: float = 120.0  # without an end of the connection; Paddle survives a cut of a minute
    hello_within: float = 5.0  # for whoever connects
    reach_within: float = 5.0  # the hub, before its member looks again
    return_within: float = 1.0  # after an end of the connection
    collect: float = 0.3  # reports of failures, before one of them is named the first
    verdict_within: float = 1.5  # must exceed collect + return_within; then a member stops by its own report
    leave_within: float = 1.5  # from a stop to the culprit's `stopped`; no bound where the culprit was told to stop
    grace: float = 0.0  # for children to end where somebody was told to stop
    noticed_later: float = 15.0  # both sides of a cut say and look out of step, and each has heard something last
    complete_within: float = 5.0  # for the mark of completion
    restart_within: float = 20.0  # for all children of a turn to be ended, before it is a stop after all
    stall: float = 0.0  # for which no trainer may print anything, before the job counts as stalled; 0: for ever
    evidence_within: float = 12.0  # for all to collect it; a member takes 10 s at most
    gathers: bool = False  # whether those who are left by their hub wait for another one
    pservers: int = 0  # of `size`: the last ranks, which serve only; 0 where all do both

    @property
    def ends_within(self) -> float:
        """For who counts as lost by silence to have noticed that, too, and to end its children."""
        return self.noticed_later + self.grace

    @property
    def stalled_within(self) -> float:
        """From the last line to the verdict of a stall, at most."""
        return self.stall * (1 + 1 / REPORTS) + self.evidence_within

    @property
    def shape(self) -> Shape:
        """How the ranks are called."""
        return Shape(self.size - self.pservers, self.pservers)


@dataclass(frozen=True)
class Credentials:
    """Who a launcher is, and which job it belongs to. `incarnation` is new with every start of a launcher."""

    me: Member
    incarnation: str
    job: str
    secret: bytes | None


@dataclass(frozen=True)
class Begin:
    """What was settled for this turn of the gang."""

    turn: int
    start: Start


@dataclass(frozen=True)
class Restart:
    """This turn is over by `cause`: end all children, say `ended`, and wait for Begin."""

    turn: int  # the one that follows
    cause: Cause


@dataclass(frozen=True)
class Lead:
    """On the hub only: every member has staged, so that what must start before all others may."""


@dataclass(frozen=True)
class Train:
    """Every member has staged and serves: trainers may start. `stall`: how long all may print nothing; 0: for ever."""

    stall: float = 0.0


@dataclass(frozen=True)
class Collect:
    """No trainer has printed anything for too long: write down what all children do, and say `collected`."""


@dataclass(frozen=True)
class Finish:
    """The job is complete; or, after a stop, the culprit has gone and everybody may go.

    After a stop with `again`: nothing of this gang runs any more, as far as anybody can know.
    """


@dataclass(frozen=True)
class Stop:
    """The job has failed or was stopped; `cause` is the first cause and the same everywhere.

    With `again` only this gang is over: whoever is not at fault gathers again, and waits for who takes the place.
    """

    cause: Cause
    again: bool = False


@dataclass(frozen=True)
class HubLost:
    """The hub was lost after this member had trained: the mark of completion tells whether the job is complete."""

    cause: Cause


Event = Begin | Lead | Train | Collect | Restart | Finish | Stop | HubLost


class Next(Enum):
    """What follows from the first cause of a failure."""

    STOP = "the job ends"
    RESTART = "the gang starts its next turn"
    GATHER = "a member is gone: the others end their children, and gather again"


class NotAgain(Exception):
    """The hub's launcher finds that no further generation may start; `cause` ends the job."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.what)
        self.cause = cause


class AlreadyComplete(Exception):
    """The hub's launcher finds that another gang has completed the job: nothing is left to do."""


class LookAgain(Exception):
    """This hub is not (or no longer) the one to join: look for peers again, then join again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Missing:
    """Who is waited for. `ranks` are the first missing ones, and empty where members have no numbers."""

    joined: int
    size: int
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        text = f"{self.joined} of {self.size}"
        if not self.ranks:
            return text
        more = self.size - self.joined - len(self.ranks)
        names = ", ".join(map(str, self.ranks)) + (f" and {more} more" if more > 0 else "")
        one = len(self.ranks) == 1 and more <= 0
        return f"{text}; {'rank' if one else 'ranks'} {names} {'has' if one else 'have'} not joined"
