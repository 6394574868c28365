"""The state of a job at one moment, as it is shown. Sources make views; a screen or plain lines show them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from launcher.model import BOTH, TRAINS, Numbers, member_name

COMPLETE = "complete"
PROBLEMS = ("failed", "lost", "no status")  # phases of a member that needs attention
TRAINING = ("training", "running", "starting")  # the first trainer to start trains before all others have started

_SAME_CLOCK = 120.0  # seconds. An event that seems to be older was read late, or its node has another clock


@dataclass(frozen=True)
class MemberView:
    """One member. All texts are printable.

    what: why it waits, or how it ended
    last_pass: the newest pass that is done, or after which the generation has resumed. The first pass is 0
    passes: how many passes the training has
    output, output_at: the last line that its first trainer has printed, and when
    """

    role: str
    rank: int
    pod: str = ""
    phase: str = ""
    what: str = ""
    last_pass: int | None = None
    passes: int | None = None
    numbers: Numbers = field(default_factory=Numbers)
    output: str = ""
    output_at: float | None = None

    @property
    def name(self) -> str:
        """`rank 1`, or with roles `trainer 1`, `pserver 0` or `heter worker 0`."""
        return member_name(self.role, self.rank)

    @property
    def label(self) -> str:
        """The name in a column with the title `rank`."""
        return str(self.rank) if self.role == BOTH else self.name

    @property
    def trains(self) -> bool:
        return self.role in TRAINS

    @property
    def current_pass(self) -> str:
        """The pass that runs, such as `3/8`, where the first is 1. Without the number of passes, as it was printed."""
        if self.passes is None:
            number = self.last_pass if self.numbers.pass_number is None else self.numbers.pass_number
            return "" if number is None else str(number)
        return f"{min(self._printed_pass or self.passes_done + 1, self.passes)}/{self.passes}"

    @property
    def _printed_pass(self) -> int | None:
        """The pass that the trainer has printed last, where the first is 1."""
        number = self.numbers.pass_number
        return number + 1 if number is not None and self.numbers.passes is None else number

    @property
    def passes_done(self) -> int:
        if self.last_pass is not None:
            return self.last_pass + 1
        if self.numbers.pass_number is None or self.numbers.passes is None:
            return 0
        return max(0, self.numbers.pass_number - 1)

    @property
    def fraction(self) -> float | None:
        """How much of the training this member has done, from 0 to 1, or None if nothing shows it."""
        numbers = self.numbers
        if self.passes:
            within = 0.0
            if (
                numbers.step is not None
                and numbers.pass_steps
                and self.current_pass != f"{self.passes_done}/{self.passes}"
            ):
                within = min(1.0, numbers.step / numbers.pass_steps)
            return min(1.0, (self.passes_done + within) / self.passes)
        if numbers.step is not None and numbers.steps:
            return min(1.0, numbers.step / numbers.steps)
        return None


@dataclass(frozen=True)
class EventLine:
    """One event of the timeline in words. `at` is in seconds since 1970.

    is_phase: whether it is a new phase of a member, which the members of the view show, too
    """

    at: float
    text: str
    is_problem: bool = False
    is_phase: bool = False


@dataclass(frozen=True)
class JobView:
    """The state of a job at the moment `at`, which is a time of this machine.

    place: where the state comes from: a folder, or a namespace
    fraction: how much of the training is done, or None if nothing shows it
    ends_at: when the training ends if it continues as fast as now, by this machine's clock
    notes: what the reader should know about this view, such as files that cannot be used
    verdict: one sentence, once the job has ended
    epilogue: lines after the verdict: the end of the log of the process that failed first, and where all of it is
    """

    name: str
    place: str
    at: float
    phase: str
    members: tuple[MemberView, ...] = ()
    generation: int | None = None
    fraction: float | None = None
    ends_at: float | None = None
    events: tuple[EventLine, ...] = ()
    notes: tuple[str, ...] = ()
    exit_code: int | None = None
    verdict: str = ""
    epilogue: tuple[str, ...] = ()

    @property
    def current_pass(self) -> str:
        """The pass of the member that is furthest behind, or "" if no member shows a pass."""
        shown = [member for member in self.members if member.trains and member.current_pass]
        if not shown:
            return ""
        last = min(shown, key=lambda member: (member.fraction or 0.0, member.passes_done))
        return last.current_pass

    @property
    def speed(self) -> float | None:
        """The examples per second of all members together, or None if no member shows its speed."""
        speeds = [each.numbers.examples_per_second for each in self.members if each.phase in TRAINING]
        known = [speed for speed in speeds if speed is not None]
        return math.fsum(known) if known else None

    @property
    def losses(self) -> tuple[float, float] | None:
        """The lowest and the highest loss of the members, or None. A loss that is not finite is the highest."""
        known = [each.numbers.loss for each in self.members if each.numbers.loss is not None]
        if not known:
            return None
        return min(known, key=_order), max(known, key=_order)


def _order(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf


def phase_of(members: Iterable[MemberView]) -> str:
    """Return the phase of the job: that of most members."""
    phases = [member.phase for member in members]
    return max(sorted(set(phases)), key=phases.count, default="")


class Pace:
    """How fast a member continues, from how much it had done at which times."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._newest: tuple[float, float] | None = None
        self._seen_at = 0.0

    def add(self, at: float, fraction: float, now: float) -> None:
        """Add how much was done at the time `at`, by the clock of the member. `now` is a time of this machine."""
        if self._newest and fraction < self._newest[1]:
            self._first = self._newest = None  # it has started again
        if self._newest and fraction == self._newest[1]:
            return
        self._first = self._first or (at, fraction)
        self._newest = at, fraction
        self._seen_at = at if 0 <= now - at < _SAME_CLOCK else now

    @property
    def ends_at(self) -> float | None:
        """When all is done, by this machine's clock, or None if that is not known yet."""
        if not self._first or not self._newest:
            return None
        (began, first), (at, newest) = self._first, self._newest
        if newest <= first or at <= began:
            return None
        return self._seen_at + (1 - newest) * (at - began) / (newest - first)
