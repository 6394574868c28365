"""The lanes: what each member did at which time. Members with equal lanes share one lane."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from launcher.model import ROLES, TRAINER, CauseKind, role_name
from launcher.report.facts import LOST, SERVING, TRAINING, Facts, Member, PeerChange, Place, Run, Span
from launcher.report.verdict import FAILED, Verdict, missing
from launcher.report.words import ranges

_UNGROUPED = 16  # members: each has its own lane
MOST_LANES = 40
_TOLERANCE, _MOST_TOLERANCE = 0.02, 0.3  # of the time axis: two lanes that differ for a shorter time are equal
_MARKS = 60  # of a lane
_COMPARED = 100  # groups with which a lane is compared
_SHORTEST = 0.001  # of the time axis: shorter spans are joined with the span before


@dataclass(frozen=True)
class Mark:
    """A failure. `number`: the generation that the failure has ended, or None."""

    at: float
    text: str
    number: int | None


@dataclass
class Lane:
    """One or more members with the same spans."""

    members: list[Member]
    spans: list[Span]
    marks: list[Mark] = field(default_factory=list)
    is_rest: bool = False  # stands for all members that no other lane has

    @property
    def label(self) -> str:
        if self.is_rest:
            return f"{len(self.members)} others"
        if len(self.members) == 1:
            return self.members[0].name
        numbers: dict[str, list[int]] = {}
        for member in self.members:
            numbers.setdefault(member.place.role, []).append(member.place.number)
        if list(numbers) == [TRAINER] and self.members[0].role != TRAINER:
            return f"ranks {ranges(numbers[TRAINER])}"
        return ", ".join(f"{role_name(role)}s {ranges(numbers[role])}" for role in ROLES if role in numbers)

    @property
    def note(self) -> str:
        """The pod of a member, or how many members share the lane."""
        return self.members[0].pod if len(self.members) == 1 else f"{len(self.members)} members"


def lanes(facts: Facts, verdict: Verdict) -> list[Lane]:
    """Return the lanes of all members in rank order. Of a large job, lanes that differ from the others come first."""
    end = end_of_axis(facts, verdict)
    shown = [member for member in facts.members.values() if member.runs or member.is_current]
    marks = _marks(facts, verdict)
    deaths = _Deaths(facts, verdict)
    length = max(end - facts.begin, 0.001)
    shortest = length * _SHORTEST
    each = [
        Lane([member], _spans(facts, member, end, verdict, deaths, shortest), marks.get(member.place, []))
        for member in shown
    ]
    if len(each) <= _UNGROUPED:
        return each
    return _group(each, length)


def end_of_axis(facts: Facts, verdict: Verdict) -> float:
    """Return where the time axis ends: at the end of the job, or now."""
    return max(facts.now, facts.last) if not verdict.is_over else max(verdict.at, facts.last, facts.begin + 0.1)


def _spans(facts: Facts, member: Member, end: float, verdict: Verdict, deaths: _Deaths, shortest: float) -> list[Span]:
    """Return what a member did, with the times in which no launcher ran for it."""
    spans: list[Span] = []
    for place, run in enumerate(member.runs):
        following = member.runs[place + 1].begin if place + 1 < len(member.runs) else None
        spans += run.spans
        until = run.ended if run.ended is not None else deaths.time(member, run, following, end)
        if run.state and until > run.since:
            spans.append(Span(run.state, run.since, until))
        gap_end = end if following is None else following
        is_gone = following is not None or not verdict.is_over or (run.ended is None and until < end)
        left = any(run.begin <= at <= until and facts.resizes_after(at) for at in member.stops)
        if is_gone and not left and gap_end > until and not _between_jobs(facts, until, gap_end):
            spans.append(Span(LOST, until, gap_end))
    return _readable(spans, shortest)


class _Deaths:
    """Finds out when a launcher died if it has written no end."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        ends = [
            span.end
            for member in facts.members.values()
            for run in member.runs
            for span in run.spans
            if span.state in (TRAINING, SERVING)
        ]
        self._noticed = sorted([*ends, *(each.ended for each in facts.history if each.ended)])
        self._changes: dict[Place, list[PeerChange]] = {}
        for change in facts.peers:
            self._changes.setdefault(change.place, []).append(change)
        self._missing = missing(facts)
        cause = verdict.cause
        self._lost_for_good = cause.place if cause and verdict.is_over and cause.kind == CauseKind.LOST else None

    def time(self, member: Member, run: Run, following: float | None, end: float) -> float:
        """Return when the other members noticed the death. If the launcher may still run, return the end of the axis.

        following: when the next launcher of the member began
        """
        if following is None and not self._is_lost(member):
            return end
        limit = end if following is None else following
        changes = [change for change in self._changes.get(member.place, []) if run.begin <= change.at <= limit]
        if changes and changes[-1].is_lost:
            return changes[-1].at
        place = bisect_right(self._noticed, run.last)
        return min(self._noticed[place], limit) if place < len(self._noticed) else limit

    def _is_lost(self, member: Member) -> bool:
        """Return whether the latest gang does not have this member, or has lost it."""
        return not member.is_current or member.place == self._lost_for_good or member.place in self._missing


def _between_jobs(facts: Facts, begin: float, end: float) -> bool:
    """Return whether the whole job had ended in this time, and was started again."""
    return any(begin - 5 <= at <= end for at, _, _ in facts.ends)


def _readable(spans: list[Span], shortest: float) -> list[Span]:
    """Join equal spans that touch each other. Join spans that are too short to be seen, but not lost times."""
    found: list[Span] = []
    for span in spans:
        last = found[-1] if found else None
        is_short = span.end - span.begin < shortest and span.state != LOST
        if last and span.begin - last.end < shortest and (last.state == span.state or is_short):
            found[-1] = Span(last.state, last.begin, max(last.end, span.end))
        else:
            found.append(span)
    return found


def _marks(facts: Facts, verdict: Verdict) -> dict[Place, list[Mark]]:
    """Return the failures of each member: the first causes, and processes that failed after them."""
    marks: dict[Place, list[Mark]] = {}
    for generation in facts.history:
        cause, ended = generation.cause, generation.ended
        if cause is None or cause.place is None or generation.is_resize:
            continue
        member = facts.members.get(cause.place)
        deaths = [death.at for death in member.deaths if death.generation == generation.number] if member else []
        lost = [
            change.at
            for change in facts.peers
            if change.is_lost and change.place == cause.place and generation.began <= change.at <= (ended or facts.now)
        ]
        at = min(deaths) if deaths else lost[-1] if lost and cause.kind == CauseKind.LOST else ended
        if at is not None:
            text = f"ended generation {generation.number}: {cause.sentence}"
            marks.setdefault(cause.place, []).append(Mark(at, text, generation.number))
    cause = verdict.cause
    if verdict.state == FAILED and cause and cause.place and not marks.get(cause.place):
        marks[cause.place] = [Mark(verdict.at, cause.sentence, None)]
    for place, member in facts.members.items():
        own = marks.setdefault(place, [])
        for at in member.stops:
            if facts.resizes_after(at):
                continue
            own.append(Mark(at, f"{member.full_name} got SIGTERM", None))
        own.sort(key=lambda mark: mark.at)
        del own[:-_MARKS]
    return marks


def _group(each: list[Lane], axis: float) -> list[Lane]:
    """Join lanes that are nearly equal. Increase the tolerance until there are few enough lanes."""
    tolerance = _TOLERANCE
    groups = _joined(each, axis * tolerance)
    while len(groups) > MOST_LANES and tolerance < _MOST_TOLERANCE:
        tolerance *= 2
        groups = _joined(each, axis * tolerance)
    groups.sort(key=lambda lane: (not lane.marks, len(lane.members), lane.members[0].place))
    if len(groups) > MOST_LANES:
        largest = max(groups, key=lambda lane: len(lane.members))
        others = [lane for lane in groups if lane is not largest]
        kept, left = others[: MOST_LANES - 2], others[MOST_LANES - 2 :]
        members = [member for lane in left for member in lane.members]
        rest = Lane(members, max(left, key=lambda lane: len(lane.members)).spans, is_rest=True)
        groups = [*kept, rest, largest]
    return groups


def _joined(each: list[Lane], tolerance: float) -> list[Lane]:
    """Return one lane per group. A lane with failures is not joined with others.

    tolerance: seconds in which two lanes of a group may have different states
    """
    groups: dict[tuple[object, ...], list[Lane]] = {}
    found = []
    for lane in each:
        alike = [] if lane.marks else groups.setdefault(_fate(lane.members[0]), [])
        same = next((other for other in alike[:_COMPARED] if _is_alike(other.spans, lane.spans, tolerance)), None)
        if same is not None:
            same.members.append(lane.members[0])
            continue
        group = Lane(list(lane.members), lane.spans, lane.marks)
        alike.append(group)
        found.append(group)
    return found


def _fate(member: Member) -> tuple[object, ...]:
    run = member.run
    return (len(member.runs), run.state, run.exit_code) if run else ()


def _is_alike(some: list[Span], others: list[Span], tolerance: float) -> bool:
    """Return whether two lanes have different states for at most `tolerance` seconds."""
    times = [(span.begin, 0, span.state) for span in some] + [(span.end, 0, "") for span in some]
    times += [(span.begin, 1, span.state) for span in others] + [(span.end, 1, "") for span in others]
    times.sort(key=lambda time: (time[0], time[2] != ""))  # of two events at the same time, the end comes first
    states, differ, before = ["", ""], 0.0, 0.0
    for at, which, state in times:
        if states[0] != states[1]:
            differ += at - before
            if differ > tolerance:
                return False
        states[which], before = state, at
    return True
