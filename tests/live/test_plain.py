"""The plain lines: only changes, in few lines."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from launcher.live.plain import PlainLines, progress_line
from launcher.live.view import EventLine, JobView, MemberView
from launcher.model import BOTH, PSERVER, TRAINER, Numbers

JOB = JobView("job", "/v/job", 1000.0, "training")


def member(rank: int, phase: str = "training", **more: object) -> MemberView:
    return MemberView(BOTH, rank, f"pod-{rank}", phase, **more)  # type: ignore[arg-type]


class Shown:
    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.lines = PlainLines(self._stream)

    def after(self, view: JobView, stale: str = "") -> list[str]:
        """Show a view, and return the new lines without their times."""
        self._stream.seek(0)
        self._stream.truncate()
        self.lines.show(view, stale)
        return re.sub(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", self._stream.getvalue()).splitlines()


def test_a_view_that_has_not_changed_adds_no_line() -> None:
    shown, view = Shown(), replace(JOB, members=(member(0), member(1)), events=(EventLine(1, "gang"),), notes=("odd",))
    assert shown.after(view) == ["odd", "gang", "rank 0-1: training"]
    assert shown.after(view) == []
    assert shown.after(replace(view, at=2000.0)) == []


def test_a_member_that_fails_has_a_line_with_its_pod_and_reason() -> None:
    shown = Shown()
    shown.after(replace(JOB, members=(member(0), member(1))))
    failed = replace(JOB, members=(member(0), member(1, "failed", what="killed")))
    assert shown.after(failed) == ["rank 1 (pod-1): failed: killed"]


def test_members_that_change_together_have_one_line() -> None:
    shown = Shown()
    many = tuple(member(rank) for rank in range(1000))
    assert shown.after(replace(JOB, members=many)) == ["rank 0-999: training"]
    changed = tuple(replace(each, phase="restarting") if each.rank % 500 < 2 else each for each in many)
    assert shown.after(replace(JOB, members=changed)) == ["rank 0-1, 500-501: restarting"]


def test_roles_have_lines_of_their_own() -> None:
    members = (MemberView(TRAINER, 0, phase="waiting"), MemberView(PSERVER, 0, phase="waiting"))
    assert Shown().after(replace(JOB, members=members)) == ["trainer 0: waiting", "pserver 0: waiting"]


def test_the_progress_is_shown_once_in_a_while() -> None:
    shown = Shown()
    seen = replace(JOB, members=(member(0, passes=4, numbers=Numbers(2, 4, loss=0.5, examples_per_second=100.0)),))
    seen = replace(seen, fraction=0.25, ends_at=1090.0)
    assert shown.after(seen)[-1] == "pass 2/4, 25 %, loss 0.5000, 100 examples/s, ETA 90 s"
    assert shown.after(replace(seen, fraction=0.5)) == []


def test_without_numbers_the_last_line_of_the_first_trainer_is_the_progress() -> None:
    view = replace(JOB, members=(member(0), member(1, output="step three"), member(2, output="no")))
    assert progress_line(view) == "rank 1: step three"


def test_a_source_that_does_not_answer_has_one_line_until_it_answers() -> None:
    shown = Shown()
    assert shown.after(JOB) == []
    assert shown.after(JOB, "no answer for 6 s") == ["no answer for 6 s"]
    assert shown.after(JOB, "no answer for 7 s") == []
    assert shown.after(JOB) == ["job: its state is up to date again"]


def test_an_event_that_the_members_show_adds_no_line() -> None:
    event = EventLine(1, "rank 0: failed", is_phase=True)
    assert Shown().after(replace(JOB, members=(member(0, "failed"),), events=(event,))) == ["rank 0 (pod-0): failed"]


def test_no_line_has_characters_that_a_terminal_would_interpret() -> None:
    event = EventLine(1, "bad \x1b[2J\nline")
    assert Shown().after(replace(JOB, events=(event,))) == ["bad \\x1b[2J line"]
