"""The rules that each story of a gang must keep."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from launcher.gang import Begin, Finish, GangSettings, HubLost, Lead, Restart, Stop, Train, Verdict
from launcher.gang.first_cause import survivor_penalty
from launcher.model import Cause, CauseKind, Start
from launcher.run.restarts import MAX_ATTEMPTS
from tests.simulation.apart_rules import (
    members_that_cannot_reach_each_other_are_named,
    only_members_that_cannot_reach_each_other_are_named,
)
from tests.simulation.schedule import DISTURBING, SLOW_MARK, Cut, Death, Fault, Freeze, Killed, Off, Silence, Told
from tests.simulation.story import (
    END_WITHIN,
    SILENCE,
    Claimed,
    Disturbed,
    Entry,
    Failed,
    Gone,
    Judged,
    LastWord,
    Left,
    Marking,
    Passed,
    Prepared,
    Reached,
    Rejoins,
    Runs,
    Said,
    Story,
    Welcomed,
)

NEARLY = 1e-6


def every_launcher_ends(story: Story) -> None:
    assert not story.waiting, f"ranks {story.waiting} still wait {END_WITHIN:g} s after the last fault"


def events_come_in_their_order(story: Story) -> None:
    """Attempts only grow. Each has Begin, Lead on the hub, Train. Only Finish may follow the end, after a Stop."""
    for rank in range(story.schedule.size):
        all_of_an_attempt: list[type] = [Begin, Lead, Train] if rank == 0 else [Begin, Train]
        attempt, due = 0, list(all_of_an_attempt)
        ends: list[type] = [Restart, Stop, Finish, HubLost]
        for entry in story.of(Begin, Lead, Train, Restart, Stop, Finish, HubLost, rank=rank):
            kind = type(entry.what)
            assert kind in [*due[:1], *ends], f"in attempt {attempt}: {entry}"
            if kind is Restart:
                assert entry.what.attempt > attempt, f"in attempt {attempt}: {entry}"
                attempt, due = entry.what.attempt, list(all_of_an_attempt)
            elif kind in ends:
                due, ends = [], [Finish] if kind is Stop else []
            else:
                due.remove(kind)
                assert kind is not Begin or entry.what.attempt == attempt, f"in attempt {attempt}: {entry}"


def all_have_said(story: Story, word: str, attempt: int, before: Entry) -> bool:
    earlier = itertools.takewhile(lambda entry: entry is not before, story.entries)
    said = Said(word, attempt)
    return len({entry.rank for entry in earlier if entry.what == said}) == story.schedule.size


def an_attempt_begins_when_all_have_ended_the_one_before(story: Story) -> None:
    for entry in story.of(Begin):
        assert entry.what.attempt == 0 or all_have_said(story, "ended", entry.what.attempt, entry), (
            f"too early: {entry}"
        )


def no_two_attempts_run_together(story: Story) -> None:
    running: dict[int, int] = {}
    for entry in story.of(Runs):
        if entry.what.attempt is None:
            running.pop(entry.rank, None)
        else:
            running[entry.rank] = entry.what.attempt
        assert len(set(running.values())) <= 1, f"children of several attempts, by rank: {running} at {entry.at}"


def another_gang_finds_no_process_left(story: Story) -> None:
    """When another gang can begin, all processes of the gang before have ended. docs/resume.md has the exceptions.

    A frozen launcher does not know that its gang is over. A killed hub cannot report which members are silent or still
    end their processes. A member that cannot reconnect after a reset, or after several in a row, assumes that the hub
    is dead. Servers that start before the first Begin do not count.
    """
    faults, size = story.schedule.faults, story.schedule.size
    silence = any(isinstance(fault, Silence) for fault in faults)
    if silence and any(isinstance(fault, Cut) for fault in faults):
        return
    if any(longest_cut(faults, rank, size) > GangSettings.reconnect_within / 2 for rank in range(1, size)):
        return
    unknown = {fault.rank % size for fault in faults if isinstance(fault, Freeze)}
    if any(isinstance(fault, Killed | Off) and fault.rank % size == 0 for fault in faults):
        for fault in faults:
            if isinstance(fault, Cut | Silence | Told) or (isinstance(fault, Killed | Off) and fault.rank % size):
                unknown |= {fault.rank % size} if fault.rank % size else set(range(size))
    begins_at = when_another_gang_can_begin(story)
    if not story.of(Rejoins) or begins_at is None:
        return
    runs = {entry.rank: entry.what.attempt is not None for entry in story.of(Runs) if entry.at <= begins_at + NEARLY}
    begun = {entry.rank for entry in story.of(Begin)}
    running = {rank for rank, still in runs.items() if still and rank in begun} - unknown
    assert not running, f"children of {running} still run at {begins_at:g}"


def longest_cut(faults: Sequence[Fault], rank: int, size: int) -> float:
    """Return for how many seconds cuts keep a member from the hub. A cut in the reconnect time prolongs the last."""
    longest = at = began = 0.0
    cut_at = -GangSettings.reconnect_within
    for fault in faults:
        at += fault.after
        if isinstance(fault, Cut) and fault.rank % size in (0, rank):
            if at - cut_at >= GangSettings.reconnect_within:
                began = at
            cut_at, longest = at, max(longest, at + fault.away - began)
    return longest


def when_another_gang_can_begin(story: Story) -> float | None:
    """Return when the last pod has rejoined or can be replaced, or None if one of them cannot be replaced.

    Kubernetes replaces a pod that is gone. It may replace a pod that is being deleted before its launcher has ended.
    """
    free: dict[int, float] = {}
    for entry in story.of(Rejoins, Left, Gone, Failed):
        if not isinstance(entry.what, Failed) or entry.what.cause.kind is CauseKind.STOPPED:
            free.setdefault(entry.rank, entry.at)
    return max(free.values()) if len(free) == story.schedule.size else None


def training_begins_when_all_have_staged_and_serve(story: Story) -> None:
    attempts: Counter[int] = Counter()
    for entry in story.of(Train, Restart):
        if isinstance(entry.what, Restart):
            attempts[entry.rank] = entry.what.attempt
        else:
            assert all_have_said(story, "staged", -1, entry), f"too early: {entry}"
            assert all_have_said(story, "serving", attempts[entry.rank], entry), f"too early: {entry}"


def all_start_the_same_in_an_attempt(story: Story) -> None:
    starts: dict[int, Start] = {}
    for entry in story.of(Begin):
        assert starts.setdefault(entry.what.attempt, entry.what.start) == entry.what.start, f"another start: {entry}"
    assert len(set(starts.values())) == len(starts), f"one start for several attempts: {starts}"
    assert set(starts.values()) <= {entry.what.start for entry in story.of(Prepared)}


def completion_is_marked_once_and_before_the_finish(story: Story) -> None:
    """A job without the mark is not complete."""
    assert len(story.of(Marking)) <= 2 + story.schedule.flawed, "marked more than once"
    for entry in story.ends().values():
        if isinstance(entry.what, Finish):
            before = story.entries[: story.entries.index(entry)]
            assert any(earlier.what == Marking(done=True) for earlier in before), f"not marked: {entry}"


def complete_means_that_all_have_trained_in_one_attempt(story: Story) -> None:
    attempts = range(len(story.of(Judged)) + 1)
    for entry in [*story.ends().values(), *story.of(Marking)]:
        if isinstance(entry.what, Finish | Marking):
            assert any(all_have_said(story, "trained", attempt, entry) for attempt in attempts), (
                f"not all have trained: {entry}"
            )


def the_hub_ends_the_gang_in_one_way(story: Story) -> None:
    verdicts = {entry.what.cause for entry in story.of(LastWord)}
    hub = story.ends().get(0)
    if hub is not None:
        verdicts.add(hub.what.cause if isinstance(hub.what, Stop) else None)
    assert len(verdicts) <= 1, f"several: {verdicts}"


def each_member_ends_as_the_hub_has_said(story: Story) -> None:
    for rank, end in story.ends().items():
        for verdict in story.of(LastWord, rank=rank):
            if verdict.at < end.at:
                cause = end.what.cause if isinstance(end.what, Stop) else None
                assert cause == verdict.what.cause, f"has heard {verdict}, and ends by {end}"


def all_end_alike_without_disturbances(story: Story) -> None:
    if story.undisturbed():
        ends = {(type(entry.what), getattr(entry.what, "cause", None)) for entry in story.ends().values()}
        assert len(ends) <= 1, f"several ends: {ends}"


def each_cause_has_happened(story: Story) -> None:
    failed: dict[Cause, int | None] = {}
    away: set[int] = set()  # ranks that may be lost for others
    for entry in story.entries:
        match entry.what:
            case Failed(cause, attempt, _):
                failed[cause] = attempt
            case Prepared(Cause() as cause):
                failed[cause] = None
            case Judged(cause, _, told) if cause in failed:  # `told` may have more details
                failed[told] = failed[cause]
            case Disturbed() | Left():
                away.add(entry.rank)
            case Restart(attempt, cause):
                assert failed.get(cause, -1) == attempt - 1, f"not of the attempt before: {entry}"
            case Stop(cause) | HubLost(cause) if cause.kind is CauseKind.LOST:
                assert away & {cause.rank, entry.rank, 0}, f"was not lost: {entry}"
            case Stop(cause) if "not started again" in cause.what:
                assert any(cause.what.startswith(f"{known.what}; not") for known in failed), f"not known: {entry}"
            case Stop(cause) if is_of_the_mark(cause):
                assert story.schedule.mark_fails or story.schedule.marks == SLOW_MARK, f"has not happened: {entry}"
            case Stop(cause):
                assert cause in failed, f"has not happened: {entry}"


def is_of_the_mark(cause: Cause) -> bool:
    return "the mark of completion is missing" in cause.what


def a_member_that_reconnects_in_time_is_not_lost(story: Story) -> None:
    faults, size = story.schedule.faults, story.schedule.size
    struck = {fault.rank % size for fault in faults if isinstance(fault, DISTURBING) and not isinstance(fault, Cut)}
    cut_at, returned = dict[int, float](), set[int]()
    for entry in story.of(Disturbed, Welcomed, Left, Judged) if 0 not in struck else []:
        match entry.what:
            case Disturbed() | Left():
                if entry.rank not in cut_at or entry.rank in returned:  # otherwise the hub counts from the first cut
                    cut_at[entry.rank] = entry.at
                returned.discard(entry.rank)
            case Welcomed() if entry.rank in cut_at and entry.at < cut_at[entry.rank] + GangSettings.reconnect_within:
                returned.add(entry.rank)
            case Judged(cause) if cause.kind is CauseKind.LOST:
                assert cause.rank in struck or cause.rank not in returned, f"it has reconnected: {entry}"


def a_silence_shorter_than_the_timeout_loses_no_member(story: Story) -> None:
    """In a gang that has begun. A member whose process dies while it is cut off may stop by itself and leave.

    A hub that has finished leaves, too. A member that was cut off meanwhile loses it, and reads the mark of completion.
    """
    faults, size = story.schedule.faults, story.schedule.size
    silent = sum(fault.seconds for fault in faults if isinstance(fault, Silence))
    harmless = all(
        isinstance(fault, Silence) or (isinstance(fault, Death) and fault.code == 1 and fault.rank % size == 0)
        for fault in faults
    )
    disturbed = [entry.at for entry in story.of(Disturbed)]
    begun = [entry.at for entry in story.of(Begin)][:size]
    if harmless and 0 < silent <= SILENCE - 10 and len(begun) == size and max(begun) < min(disturbed, default=0.0):
        losses = (Judged, Stop) if story.of(Finish, rank=0) else (Judged, Stop, HubLost)
        lost = [entry for entry in story.of(*losses) if entry.what.cause.kind is CauseKind.LOST]
        assert not lost, f"was cut off for {silent:g} s: {lost[0]}"


def the_first_cause_is_the_earliest_that_was_reported_in_time(story: Story) -> None:
    """By the hub's clock and the age of each report. Without disturbances only, since the hub waits for reconnects."""
    if not story.undisturbed():
        return
    attempt, reports = 0, list[Report]()
    for entry in story.of(Failed, Reached, Judged):
        match entry.what:
            case Failed(cause) if "is not whole" in cause.what:  # reports while the mark is written do not count
                kept = [report.cause for report in reports if ends_any_attempt(report.cause)]
                reports = [Report(entry.at, entry.at, each) for each in (cause, *kept)]
            case Failed(cause, of_attempt, age) if entry.rank == 0 and of_attempt in (None, attempt):
                reports.append(Report(entry.at, entry.at - age, cause))
            case Reached(cause, of_attempt, died_at) if of_attempt == attempt:
                reports.append(Report(entry.at, died_at, cause))
            case Judged(cause, then, _) if not is_of_the_mark(cause):
                closing = min(report.arrived for report in reports) + GangSettings.reports_within
                assert abs(entry.at - closing) < NEARLY, f"judged at {entry.at}, due at {closing}"
                judged = min(report.counts_from for report in reports if report.cause == cause)
                earlier = [
                    report
                    for report in reports
                    if report.arrived < closing - NEARLY and report.counts_from < judged - NEARLY
                ]
                assert not earlier, f"{entry}, but earlier: {earlier}"
                attempt += then is Verdict.RESTART
                reports = [  # the hub's member repeats failures that end any attempt
                    replace(report, arrived=entry.at) for report in reports if ends_any_attempt(report.cause)
                ]


def ends_any_attempt(cause: Cause) -> bool:
    return cause.rank == 0 and not cause.kind.restartable


def no_generation_is_begun_twice(story: Story) -> None:
    """A generation that another gang of this job has claimed is not begun either."""
    begun = [entry.what.start.generation for entry in story.of(Prepared) if isinstance(entry.what.start, Start)]
    claimed = {entry.what.number for entry in story.of(Claimed)}
    assert begun == sorted({*begun} - claimed), f"begun: {begun}, another gang's: {claimed}"


def no_more_restarts_than_allowed(story: Story) -> None:
    restarts = [entry for entry in story.of(Judged) if entry.what.then is Verdict.RESTART]
    assert len(restarts) <= story.schedule.restarts, f"{story.schedule.restarts} are allowed: {restarts}"


def a_start_resumes_after_the_last_pass(story: Story) -> None:
    last = None
    for entry in story.of(Passed, Prepared):
        match entry.what:
            case Passed(number):
                last = number if story.schedule.saves else None
            case Prepared(Start(_, resume)):
                assert resume == last, f"after pass {last}: {entry}"


def failures(story: Story) -> Iterator[tuple[Entry, bool, list[Entry]]]:
    """For each start, yield it, whether the generation before it completed a pass, and that generation's failures."""
    passed, failed = False, list[Entry]()
    for entry in story.of(Prepared, Passed, Judged):
        match entry.what:
            case Prepared():
                yield entry, passed, failed
                passed, failed = False, []
            case Passed():
                passed = True
            case Judged(_, Verdict.RESTART, _):
                failed.append(entry)
            case Judged():
                return


def twice_the_same_failure_before_any_progress_ends_the_job(story: Story) -> None:
    """No other sequence of failures ends it for that reason."""
    alike = None
    for start, passed, failed in itertools.islice(failures(story), 1, None):
        if failed and not passed and not failed[0].what.cause.kind.is_child:
            continue  # no bug of the training program
        now = None if passed else (failed[0].what.cause.kind, failed[0].what.cause.code)
        if isinstance(start.what.start, Start):
            assert now is None or now != alike, f"failed like the one before: {failed} {start}"
        elif start.what.start.final:
            assert (now or "progress") == alike, f"the one before failed by {alike}: {failed} {start}"
        alike = now


def each_pause_is_kept_and_doubles_until_a_pass_is_done(story: Story) -> None:
    pause = 1.0
    ends = max(pace.ends for pace in story.schedule.paces)
    longest = ends + 3 * story.schedule.prepares + 10 * max(story.schedule.delays) + 0.5
    for start, passed, failed in failures(story):
        if failed and isinstance(start.what.start, Start):
            pause = 1.0 if passed else pause
            lasted = start.at - failed[-1].at
            assert lasted > pause - NEARLY, f"before {pause:g} s have passed: {failed[-1]} {start}"
            if passed and len(failed) == 1 and story.undisturbed():
                assert lasted < pause + longest, f"a pause after a pass is 1 s: {failed} {start}"
            pause *= 2


def five_generations_without_a_pass_end_the_job(story: Story) -> None:
    """A server that dies before the first generation begins ends no generation."""
    without = 0
    for _, passed, failed in itertools.islice(failures(story), 1, None):
        without = 0 if passed or not failed else without + 1
        assert without < MAX_ATTEMPTS, f"{without} ended before a pass was done, and another one begins"


@dataclass(frozen=True)
class Report:
    """A report of a failure, as the hub receives it."""

    arrived: float
    died_at: float
    cause: Cause

    @property
    def counts_from(self) -> float:
        return self.died_at + survivor_penalty(self.cause)


RULES = (
    every_launcher_ends,
    events_come_in_their_order,
    an_attempt_begins_when_all_have_ended_the_one_before,
    no_two_attempts_run_together,
    another_gang_finds_no_process_left,
    training_begins_when_all_have_staged_and_serve,
    all_start_the_same_in_an_attempt,
    completion_is_marked_once_and_before_the_finish,
    complete_means_that_all_have_trained_in_one_attempt,
    the_hub_ends_the_gang_in_one_way,
    each_member_ends_as_the_hub_has_said,
    all_end_alike_without_disturbances,
    each_cause_has_happened,
    a_member_that_reconnects_in_time_is_not_lost,
    a_silence_shorter_than_the_timeout_loses_no_member,
    the_first_cause_is_the_earliest_that_was_reported_in_time,
    members_that_cannot_reach_each_other_are_named,
    only_members_that_cannot_reach_each_other_are_named,
    no_generation_is_begun_twice,
    no_more_restarts_than_allowed,
    a_start_resumes_after_the_last_pass,
    twice_the_same_failure_before_any_progress_ends_the_job,
    each_pause_is_kept_and_doubles_until_a_pass_is_done,
    five_generations_without_a_pass_end_the_job,
)
