"""The table on a terminal of any size."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from launcher.live.screen import draw
from launcher.live.view import EventLine, JobView, MemberView
from launcher.model import BOTH, Numbers

NOW = 1000.0
HINT = "Ctrl-C ends this view"
SIZES = [(20, 5), (40, 10), (40, 24), (80, 24), (120, 40), (200, 60), (1, 1)]


def member(rank: int, **more: object) -> MemberView:
    numbers = Numbers(3, 8, 10, None, 20, 0.25 + rank / 1000, examples_per_second=5000.0 + rank)
    fields = {"pod": f"quick-start-{rank}-x7kp", "phase": "training", "passes": 8, "numbers": numbers}
    output = {"output": "Pass=2 loss=0.25", "output_at": 998.0}
    return MemberView(BOTH, rank, **{**fields, **output, **more})  # type: ignore[arg-type]


def job(count: int = 3, **more: object) -> JobView:
    members = tuple(member(rank) for rank in range(count))
    events = tuple(EventLine(900 + number, f"event {number}") for number in range(30))
    view = JobView("quick-start", "/v", NOW, "training", members, fraction=0.3125, ends_at=NOW + 75, events=events)
    return replace(view, **more)  # type: ignore[arg-type]


def lines(view: JobView, width: int = 80, height: int = 24, stale: str = "", *, color: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, force_terminal=color, markup=False, highlight=False)
    console.print(draw(view, width, height, NOW, stale, HINT))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_a_view_never_needs_more_room_than_the_terminal_has(width: int, height: int, count: int) -> None:
    shown = lines(job(count, notes=("a note " * 30,)), width, height, "no answer for 9 s")
    assert len(shown) <= height
    assert max(map(cell_len, shown), default=0) <= width


def test_80_columns_show_everything_about_a_small_job() -> None:
    shown = lines(job())
    assert shown[0].startswith("quick-start  training  3 members ")
    assert shown[1].startswith("pass 3/8  ━")
    assert shown[1].endswith(" 31 %  ETA 75 s")
    assert shown[2] == "loss 0.2500 to 0.2520   15,003 examples/s"
    assert shown[4].split() == ["rank", "pod", "phase", "pass", "loss", "examples/s", "last", "output"]
    assert "training   3/8  0.2510       5,001  2s Pass=2 loss=" in shown[6]
    assert shown[-2].endswith("event 29")
    assert shown[-1] == HINT


def test_40_columns_show_rank_phase_pass_and_loss() -> None:
    shown = lines(job(), 40)
    assert shown[4].split()[:4] == ["rank", "phase", "pass", "loss"]
    assert shown[5].split()[:4] == ["0", "training", "3/8", "0.2500"]


def test_of_a_thousand_ranks_those_that_differ_are_shown_and_the_others_counted() -> None:
    view = job(1000)
    members = list(view.members)
    members[700] = member(700, phase="failed", what="its trainer was killed")
    shown = lines(replace(view, members=tuple(members)))
    assert any("700" in line and "failed" in line and "its trainer was" in line for line in shown)
    assert any(line.startswith("and 9") and "training; 5,0" in line for line in shown)
    assert "999 training, 1 failed" in shown[0]


def test_names_of_pods_lose_their_beginning_and_other_texts_their_end() -> None:
    (row,) = [line for line in lines(job(1), 72) if line.startswith("0 ")]
    assert "…" in row
    assert "-0-x7kp" in row
    assert row.endswith("…")


def test_no_text_is_read_as_markup_or_as_an_emoji() -> None:
    hostile = "[red]not[/red] [link=x] :smile: [/]"
    view = job(1, notes=(hostile,), events=(EventLine(1, hostile),))
    view = replace(view, members=(member(0, output=hostile, pod="[b]"),))
    shown = "\n".join(lines(view, 160))
    assert shown.count(hostile) == 3
    assert "[b]" in shown


def test_wide_characters_do_not_break_the_columns() -> None:
    view = replace(job(2), members=(member(0, pod="数据数据数据-0", output="损失 0.25"), member(1)))
    shown = lines(view, 100)
    columns = [cell_len(line[: line.index("training")]) for line in shown[5:7]]
    assert columns[0] == columns[1]


def test_a_job_without_members_says_what_it_waits_for() -> None:
    view = JobView("job", "/v", NOW, "waiting", notes=("no member has joined yet",))
    shown = lines(view)
    assert shown[0].startswith("job  waiting ")
    assert shown[1] == "no member has joined yet"


def test_no_color_is_used_if_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32m" in "\n".join(lines(job(), color=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "[32m" not in "\n".join(lines(job(), color=True))
