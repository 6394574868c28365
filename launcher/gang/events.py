"""What callers of `Gang` use besides it: its settings, its events, and its exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from launcher.model import Cause, Member, Shape, Start

PROGRESS_REPORTS = 4  # at most, per member, within the stall timeout


@dataclass(frozen=True)
class GangSettings:
    """The size of the gang, where it listens, and all time limits in seconds."""

    size: int
    port: int
    listen: tuple[str, ...] | None = None  # addresses; None: all of them, IPv4 and IPv6
    heartbeat_every: float = 5.0
    silence: float = 120.0  # after which a connection is dead; Paddle survives a network cut of a minute
    hello_within: float = 5.0  # from a new connection to its hello
    reach_within: float = 5.0  # for the hub to answer, before a join fails
    reconnect_within: float = 1.0  # after the end of a connection, before the peer counts as lost
    reports_within: float = 0.3  # from the first report of a failure to the choice of the first cause
    verdict_within: float = 1.5  # before a member stops by its own report; must exceed reports + reconnect
    leave_within: float = 1.5  # from a stop to the culprit's `stopped`; no limit if a signal told it to stop
    grace: float = 0.0  # for processes to end after a signal told the launcher to stop
    silence_skew: float = 15.0  # by which one side of a network cut may notice the silence later than the other
    complete_within: float = 5.0  # for the mark of completion
    restart_within: float = 20.0  # for all processes of an attempt to end; else the gang stops
    stall: float = 0.0  # without a line of any trainer, after which the job is stalled; 0: never
    evidence_within: float = 12.0  # for all members to collect evidence; one member takes 10 s at most
    rejoins: bool = False  # whether the other members form a new gang after the loss of one
    pservers: int = 0  # the last ranks, which only serve; 0: each member does both

    @property
    def ends_within(self) -> float:
        """For a member lost by silence to notice it, and to end its processes."""
        return self.silence_skew + self.grace

    @property
    def stalled_within(self) -> float:
        """The longest time from the last line of a trainer to the verdict of a stall."""
        return self.stall * (1 + 1 / PROGRESS_REPORTS) + self.evidence_within

    @property
    def shape(self) -> Shape:
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
    """All processes of the previous attempt have ended: start the servers of this one."""

    attempt: int
    start: Start


@dataclass(frozen=True)
class Restart:
    """The previous attempt has failed by `cause`: end all processes, report `ended`, and wait for Begin."""

    attempt: int  # the next one
    cause: Cause


@dataclass(frozen=True)
class Lead:
    """On the hub only: every member has staged, so a trainer that must be the first may start."""


@dataclass(frozen=True)
class Train:
    """Every member has staged and serves: start the trainers. `stall`: see GangSettings."""

    stall: float = 0.0


@dataclass(frozen=True)
class CollectEvidence:
    """No trainer has printed anything for too long: write down what all processes do, then report `collected`."""


@dataclass(frozen=True)
class Finish:
    """The job is complete, or this gang is over and its members may leave.

    After a Stop it means that the culprit has left: the member whose failure is the cause. After a Stop with `rejoin`
    it means that no process of this gang can still run.
    """


@dataclass(frozen=True)
class Stop:
    """The job has failed or was stopped. `cause` is the first cause, and the same for all members.

    With `rejoin` only this gang is over: its members end their processes and join a new one. A member does not if a
    signal told it to stop, or if `cause` is its own and no restart can help.
    """

    cause: Cause
    rejoin: bool = False


@dataclass(frozen=True)
class HubLost:
    """The hub was lost after this member had trained. The mark of completion tells whether the job is complete."""

    cause: Cause


Event = Begin | Lead | Train | CollectEvidence | Restart | Finish | Stop | HubLost


class Verdict(Enum):
    """What follows from the first cause of a failure."""

    STOP = "the job ends"
    RESTART = "the same members start the next attempt"
    REJOIN = "a member is gone: the others end their processes and form a new gang"


class StartRefused(Exception):
    """Raised by the hub's `prepare`: no further attempt may start, and `cause` ends the job."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.what)
        self.cause = cause


class AlreadyComplete(Exception):
    """Raised by the hub's `prepare`: another gang has completed the job."""


class JoinFailed(Exception):
    """This hub is not, or no longer, the one to join: find the peers again, then join again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class MissingMembers:
    """How many members have joined. `ranks` has the first missing ones; it is empty if members have no numbers."""

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
