"""The settings, events and exceptions of `Gang`, for its callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from launcher.model import Cause, Member, Shape, Start

PROGRESS_REPORTS = 4  # the most that one member sends within the stall timeout
_SHORTEST_AUTO_STALL = 60.0  # seconds

StallTimeout = float | Literal["auto"]


@dataclass(frozen=True)
class Elastic:
    """How the size of a gang may change. It is at most GangSettings.size.

    least: the number of trainers below which the gang does not begin
    settle: the gang begins with fewer members than it may have, once no member has joined for so many seconds
    returning: how many members of the previous gang, and of those that wait, should join; None if that is not known
    ranks: the ranks in the previous gang, by pod uid. A member keeps its rank if the gang has this rank
    """

    least: int
    settle: float
    returning: int | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GangSettings:
    """The size of the gang, where it listens, and all time limits in seconds."""

    size: int
    port: int
    listen: tuple[str, ...] | None = None  # addresses; None: all addresses of this machine, IPv4 and IPv6
    heartbeat_every: float = 5.0
    silence: float = 120.0  # without data, before a connection is dead; Paddle survives a network cut of a minute
    hello_within: float = 5.0  # from a new connection to its join
    reach_within: float = 5.0  # a join fails if the hub does not answer within this time
    reconnect_within: float = 1.0  # after the end of a connection, before the peer counts as lost
    reports_within: float = 0.3  # from the first report of a failure to the choice of the first cause
    verdict_within: float = (
        2.0  # before a member stops without a verdict; above reports_within + reconnect_within + 0.5
    )
    leave_within: float = 1.5  # from a stop to the culprit's `stopped`; no limit if a signal stopped the culprit
    grace: float = 0.0  # for processes to end after a signal told the launcher to stop
    silence_skew: float = 15.0  # how much later one side of a network cut may notice the silence than the other
    complete_within: float = 10.0  # to look at the last pass, and to write the mark of completion
    restart_within: float = 20.0  # for all processes of an attempt to end; if a process has not ended, the gang stops
    stall: StallTimeout = 0.0  # without a line of any trainer, before the job is stalled; 0: no limit
    agreed_within: float = 5.0  # for all members to say which step they have reached
    evidence_within: float = 12.0  # for all members to collect evidence; one member takes 10 s at most
    rejoins: bool = False  # whether the other members form a new gang after one member is lost
    pservers: int = 0  # how many members run only a server, with the last ranks; 0: each member trains and serves
    tls_folder: str | None = None  # where the TLS certificates are; None: connections do not use TLS
    elastic: Elastic | None = None  # None: the gang has always `size` members

    @property
    def check_every(self) -> float:
        """Seconds between two checks whether a member can reach the next member of the roster."""
        return self.silence / 3

    @property
    def ends_within(self) -> float:
        """Seconds, after `silence`, in which a member that is cut off notices the silence and ends its processes."""
        return self.silence_skew + self.grace

    @property
    def reported_stall(self) -> float:
        """The stall timeout for which members report progress. With "auto", this is the shortest possible timeout."""
        return self.shortest_auto_stall if self.stall == "auto" else self.stall

    @property
    def shortest_auto_stall(self) -> float:
        """The shortest stall timeout with "auto": a job survives a network or a volume that is silent for `silence`."""
        return max(_SHORTEST_AUTO_STALL, 1.5 * self.silence)

    @property
    def stalled_within(self) -> float:
        """The longest time from the last line of a trainer to the verdict of a stall.

        With "auto", the time may be longer.
        """
        return self.reported_stall * (1 + 1 / PROGRESS_REPORTS) + self.evidence_within

    def survey_within(self, limit: float) -> float:
        """Return how long the hub waits for the answers of all members: many members need more time."""
        return limit + self.size / 200

    @property
    def shape(self) -> Shape:
        return Shape(self.size - self.pservers, self.pservers)


NO_PASS, SOME_PASSES, ALL_PASSES = PASSES = ("none", "some", "all")


@dataclass(frozen=True)
class Progress:
    """What the trainers of one member have printed in this attempt.

    line: the last line
    first_line_after: seconds from the start of the training to the first line
    longest_pause: the longest time, in seconds, between two lines after the first one
    passes: how many passes of this attempt are done: SOME_PASSES means two or more. ALL_PASSES only if the number of
        passes is known
    """

    line: str
    first_line_after: float
    longest_pause: float
    passes: str


@dataclass(frozen=True)
class Credentials:
    """Who a launcher is, and which job it belongs to. `incarnation` is new with every start of a launcher."""

    me: Member
    incarnation: str
    job: str
    secret: bytes | None


@dataclass(frozen=True)
class Begin:
    """All processes of the previous attempt have ended: start the servers of this attempt."""

    attempt: int
    start: Start


@dataclass(frozen=True)
class Restart:
    """The previous attempt has failed by `cause`: end all processes, report `ended`, and wait for Begin."""

    attempt: int  # the number of the next attempt
    cause: Cause


@dataclass(frozen=True)
class Lead:
    """On the hub only: every member has staged, so the trainer that must start first may start."""


@dataclass(frozen=True)
class Train:
    """Every member has staged, and all its servers listen: start the trainers. `stall`: see GangSettings."""

    stall: float = 0.0


@dataclass(frozen=True)
class Hold:
    """In an elastic job: let the trainers wait at their next step, and report with `report_reached` where they are."""


@dataclass(frozen=True)
class Until:
    """After Hold: let the trainers end after this step, which is the same for all trainers. 0: let them continue."""

    step: int


@dataclass(frozen=True)
class Collect:
    """Find out what all processes do, then report `collected`. If `to_file`, also write the evidence to a file."""

    survey: int
    to_file: bool


@dataclass(frozen=True)
class Finish:
    """The job is complete, or this gang has ended and its members may leave.

    After a Stop, Finish means that the culprit (the member whose failure is the cause) has left, or has had its time to
    leave. After a Stop with `rejoin`, Finish means that no process of this gang can still run.
    """


@dataclass(frozen=True)
class Stop:
    """The job has failed or was stopped. `cause` is the first cause, and the same for all members.

    If `rejoin` is true, only this gang ends: its members end their processes and join a new gang. Two kinds of members
    do not join again: a member that got SIGTERM, and the member at fault if no restart can help.
    """

    cause: Cause
    rejoin: bool = False


@dataclass(frozen=True)
class HubLost:
    """The hub was lost after this member had trained. The mark of completion shows whether the job is complete."""

    cause: Cause


Event = Begin | Lead | Train | Hold | Until | Collect | Restart | Finish | Stop | HubLost


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


class NotComplete(Exception):
    """Raised by the hub's `complete`: all members have trained, but because of `cause` they must train again."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.what)
        self.cause = cause


class OtherGang(Exception):
    """Raised by the hub's `prepare`: another gang of this elastic job trains already. All members join that gang."""


class AlreadyComplete(Exception):
    """Raised by the hub's `prepare`: another gang has completed the job."""


class JoinFailed(Exception):
    """This hub cannot be joined, or is not the hub any more: find the peers again, then join again.

    answers: whether it could be reached
    leads: whether it is the hub, and has refused this member
    """

    def __init__(self, reason: str, *, answers: bool = True, leads: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answers = answers
        self.leads = answers and leads


@dataclass(frozen=True)
class MissingMembers:
    """How many of `size` members have joined. `ranks`: the first missing ranks; empty if members have no numbers.

    runs: the gang runs without this member, which joins as soon as the gang can grow
    """

    joined: int
    size: int
    ranks: tuple[int, ...]
    runs: bool = False

    def __str__(self) -> str:
        if self.runs:
            return f"the job runs with {self.joined} of {self.size}, and grows when its running pass is saved"
        text = f"{self.joined} of {self.size}"
        if not self.ranks:
            return text
        more = self.size - self.joined - len(self.ranks)
        names = ", ".join(map(str, self.ranks)) + (f" and {more} more" if more > 0 else "")
        one = len(self.ranks) == 1 and more <= 0
        return f"{text}; {'rank' if one else 'ranks'} {names} {'has' if one else 'have'} not joined"
