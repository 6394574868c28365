"""The clock of the hub: when the job counts as stalled, with a fixed timeout and with LAUNCHER_STALL_TIMEOUT=auto."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from launcher.gang import ALL_PASSES, NO_PASS, SOME_PASSES, GangSettings, Progress, messages
from launcher.gang import stall as clock
from launcher.gang.events import StallTimeout
from launcher.gang.protocol import Message
from launcher.gang.survey import Surveys
from launcher.model import Cause, MemberReport, ProcessState, Shape

ONE_PROCESS = MemberReport("training", 1, ())


class Clock:
    """The hub's clock of progress in simulated time: 60 s without a line are a stall."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stall: StallTimeout = 60.0, silence: float = 120.0) -> None:
        self.now = 1000.0
        self.said: list[Message] = []
        self.causes: list[Cause] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(clock, "time", self)
        monkeypatch.setattr(
            clock.StallDetector,
            "_later",
            lambda detector, seconds, call: setattr(detector, "_timer", self._later(seconds, call)),
        )
        monkeypatch.setattr(Surveys, "_later", lambda _, seconds, call: self._later(seconds, call))
        self.surveys = Surveys((0, 1), self.said.append)
        self.is_cut = False
        self.stall = clock.StallDetector(
            GangSettings(2, 0, stall=stall, silence=silence),
            self.surveys,
            lambda: Shape(2),
            self.causes.append,
            lambda: self.is_cut,
        )

    def _later(self, seconds: float, call: Callable[[], None]) -> Mock:
        entry = self.now + seconds, call
        self._due.append(entry)
        return Mock(cancel=lambda: self._due.remove(entry) if entry in self._due else None)

    @property
    def is_running(self) -> bool:
        return bool(self._due)

    def monotonic(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Advance the time, and call all timers in time."""
        end = self.now + seconds
        while due := sorted([each for each in self._due if each[0] <= end], key=lambda each: each[0]):
            self._due.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][1]()
        self.now = max(self.now, end)

    def hears(
        self,
        rank: int,
        age: float = 0.0,
        attempt: int = 0,
        first: float = 0.0,
        pause: float = 0.0,
        passes: str = NO_PASS,
        line: str = "a line",
    ) -> None:
        self.stall.on_progress(rank, messages.progress(attempt, age, Progress(line, first, pause, passes)))

    def collects(self, rank: int, report: MemberReport = ONE_PROCESS, survey: int = 0) -> None:
        self.surveys.on_collected(rank, messages.collected(survey, report))


def test_a_line_of_any_trainer_resets_the_clock_and_no_line_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    for _ in range(20):
        hub.passes(59)
        hub.hears(1)
    hub.passes(74)
    assert not hub.said
    hub.passes(2)
    assert hub.said == [messages.collect(0, to_file=True)]
    hub.passes(13)
    assert [cause.kind for cause in hub.causes] == ["stalled"]
    assert "for 75 s" in hub.causes[0].what
    assert "the last line was of rank 1: 'a line'" in hub.causes[0].what


def test_a_line_in_time_that_is_reported_late_is_no_stall_and_counts_from_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.passes(74)
    hub.hears(0, age=15)
    hub.passes(59)
    assert not hub.said
    hub.passes(2)
    assert hub.said


def test_the_latest_line_of_a_member_is_named_although_its_first_report_took_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first report of a line may have only its beginning."""
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.hears(1, line="this")
    hub.hears(1, age=0.3, line="this is 1")
    hub.hears(0, age=0.4, line="this is 0")
    hub.passes(76 + 13)
    assert "the last line was of rank 1: 'this is 1'" in hub.causes[0].what


def test_a_hub_that_was_stopped_first_reads_the_messages_that_arrived_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.now += 3600
    hub.passes(0)
    hub.hears(1, age=5)
    hub.passes(16)
    assert not hub.said


def test_a_trainer_of_an_earlier_attempt_does_not_reset_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(1)
    hub.passes(74)
    hub.hears(0, attempt=0)
    hub.passes(2)
    assert hub.said


def test_evidence_of_an_earlier_attempt_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.passes(76)
    hub.stall.watch(1)
    hub.passes(76)
    for survey in (0, 1):
        assert not hub.causes
        for rank in range(2):
            hub.collects(rank, survey=survey)
    assert hub.causes


def test_a_cut_network_is_no_stall_and_the_clock_starts_again_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.passes(50)
    hub.is_cut = True
    hub.passes(100)
    hub.is_cut = False
    hub.passes(70)
    assert not hub.said
    hub.passes(10)
    assert hub.said


@pytest.mark.parametrize("on", [True, False])
def test_no_clock_runs_if_it_is_off_or_all_members_have_trained(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    hub = Clock(monkeypatch, stall=60.0 if on else 0.0)
    hub.stall.watch(0)
    if on:
        hub.stall.stop()
    hub.passes(10_000)
    assert not hub.said
    assert not hub.is_running


def test_the_cause_of_a_stall_says_where_each_trainer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.passes(76)
    hub.collects(0, MemberReport("training", 1, (ProcessState("trainer", "all_reduce, train.py:57", "", 75.0),)))
    hub.collects(1, MemberReport("training", 1, (ProcessState("trainer", "read, train.py:42", "", 80.0),)))
    assert (
        "rank 0 in all_reduce, train.py:57, no output for 75 s; rank 1 in read, train.py:42, no output for 80 s"
        in hub.causes[0].what
    )


# ---- LAUNCHER_STALL_TIMEOUT=auto -------------------------------------------------------------------------------------


def begins(monkeypatch: pytest.MonkeyPatch) -> Clock:
    hub = Clock(monkeypatch, "auto", silence=15.0)
    hub.stall.watch(0)
    return hub


def test_auto_has_no_limit_before_two_passes_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = begins(monkeypatch)
    hub.hears(0, first=2.0, pause=1.0)
    hub.hears(1, first=2.0, pause=1.0)
    hub.passes(100_000)
    assert not hub.said


def test_auto_is_60_s_if_all_pauses_were_short(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = begins(monkeypatch)
    hub.hears(0, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.hears(1, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.passes(74)
    assert not hub.said
    hub.passes(16 + 2)
    assert hub.said


def test_auto_is_ten_times_the_longest_pause_and_a_hang_is_named_within_twice_that_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = begins(monkeypatch)
    hub.hears(1, first=2.0, pause=25.0, passes=SOME_PASSES)
    hub.hears(0, first=2.0, pause=30.0, passes=SOME_PASSES)
    hub.passes(249)
    assert not hub.said
    hub.passes(251)
    assert "LAUNCHER_STALL_TIMEOUT=auto: here 250 s, the longest pause before was 25 s" in hub.causes[0].what


def test_a_trainer_that_prints_nothing_for_long_is_no_pause_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = begins(monkeypatch)
    hub.hears(1, first=2.0, pause=1.0)
    for _ in range(100):
        hub.passes(15)
        hub.hears(0, first=2.0, pause=14.0, passes=SOME_PASSES)
    hub.passes(139)
    assert not hub.said
    hub.passes(100)
    assert "the longest pause before was 14 s" in hub.causes[0].what


def test_a_pause_of_the_whole_job_counts_for_all_later_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = begins(monkeypatch)
    hub.hears(0, first=2.0, pause=30.0, passes=SOME_PASSES)
    hub.hears(1, first=2.0, pause=30.0)
    hub.stall.watch(1)
    hub.hears(0, attempt=1, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.hears(1, attempt=1, first=2.0, pause=1.0)
    hub.passes(299)
    assert not hub.said
    hub.passes(100)
    assert hub.said


def test_after_a_restart_auto_has_no_limit_before_two_passes_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may first load a saved pass for a long time."""
    hub = begins(monkeypatch)
    hub.hears(0, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.hears(1, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.stall.watch(1)
    hub.passes(10_000)
    hub.hears(0, attempt=1, first=10_000.0, pause=0.0)
    hub.passes(10_000)
    assert not hub.said


def test_a_member_whose_first_line_comes_late_does_not_shorten_the_longest_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = begins(monkeypatch)
    hub.passes(5000)
    hub.hears(0, first=60.0, pause=100.0, passes=SOME_PASSES)
    hub.hears(1, first=5000.0, pause=0.0, passes=SOME_PASSES)
    hub.passes(999)
    assert not hub.said


def test_auto_is_not_shorter_than_a_silence_that_the_job_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch, "auto", silence=120.0)
    hub.stall.watch(0)
    hub.hears(0, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.hears(1, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.passes(180)
    assert not hub.said
    hub.passes(50)
    assert hub.said


def test_auto_has_no_limit_once_the_trainers_of_a_member_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = begins(monkeypatch)
    hub.hears(0, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.hears(1, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.stall.on_trained()
    hub.passes(100_000)
    assert not hub.said


def test_output_while_evidence_is_collected_withdraws_the_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.passes(76)
    hub.hears(1)
    hub.collects(0)
    hub.collects(1)
    assert not hub.causes
    hub.passes(80)
    assert [message["survey"] for message in hub.said] == [0, 1]


def test_auto_has_no_limit_after_the_last_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may test, export and upload its model then: nothing is known about how long this takes."""
    hub = begins(monkeypatch)
    hub.hears(0, first=2.0, pause=1.0, passes=SOME_PASSES)
    hub.hears(1, first=2.0, pause=1.0, passes=ALL_PASSES)
    hub.passes(100_000)
    assert not hub.said
