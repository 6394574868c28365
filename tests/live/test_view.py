"""What a view says about passes, progress and speed."""

from __future__ import annotations

import math

import pytest

from launcher.live.view import JobView, MemberView, Pace
from launcher.model import BOTH, PSERVER, Numbers


def member(rank: int = 0, **more: object) -> MemberView:
    return MemberView(BOTH, rank, **{"phase": "training", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "label", "fraction"),
    [
        (member(), "", None),
        (member(last_pass=3), "3", None),
        (member(numbers=Numbers(pass_number=4)), "4", None),
        (member(numbers=Numbers(step=5, steps=20)), "", 0.25),
        (member(passes=8, numbers=Numbers(pass_number=3, passes=8)), "3/8", 0.25),
        (member(passes=8, numbers=Numbers(3, 8, step=10, pass_steps=20)), "3/8", 2.5 / 8),
        (member(passes=8, last_pass=2, numbers=Numbers(3, 8, step=20, pass_steps=20)), "3/8", 3 / 8),
        (member(passes=8, last_pass=7, numbers=Numbers(8, 8, step=20, pass_steps=20)), "8/8", 1.0),
        (member(passes=8, numbers=Numbers(pass_number=0)), "1/8", 0.0),
        (member(passes=8, last_pass=3, numbers=Numbers(pass_number=4)), "5/8", 0.5),
        (member(passes=8, last_pass=7), "8/8", 1.0),
        (member(passes=2, last_pass=10**17, numbers=Numbers(10**17, 2, 9, pass_steps=1)), "2/2", 1.0),
        (member(passes=3, numbers=Numbers(1, 3, step=9, pass_steps=0)), "1/3", 0.0),
    ],
)
def test_the_pass_that_runs_and_how_much_is_done_follow_from_what_is_known(
    seen: MemberView, label: str, fraction: float | None
) -> None:
    assert seen.current_pass == label
    assert seen.fraction == (None if fraction is None else pytest.approx(fraction))


def test_the_pass_of_a_job_is_that_of_the_member_that_is_furthest_behind() -> None:
    members = tuple(member(rank, passes=8, last_pass=rank) for rank in (2, 1, 3))
    job = JobView("job", "", 0, "training", (*members, MemberView(PSERVER, 0, phase="serving")))
    assert job.current_pass == "3/8"


def test_the_speed_of_a_job_is_the_sum_of_the_members_that_train() -> None:
    fast = member(numbers=Numbers(examples_per_second=10, loss=0.5))
    ended = member(phase="trained", numbers=Numbers(examples_per_second=90, loss=math.nan))
    job = JobView("job", "", 0, "training", (fast, fast, ended))
    assert job.speed == 20
    assert job.losses is not None
    assert job.losses[0] == 0.5
    assert math.isnan(job.losses[1])
    assert JobView("job", "", 0, "training").speed is None
    assert JobView("job", "", 0, "training").losses is None


def test_the_end_follows_from_the_pace_since_the_first_sample() -> None:
    pace = Pace()
    assert pace.ends_at is None
    pace.add(1000, 0.1, 1000)
    assert pace.ends_at is None
    pace.add(1010, 0.2, 1011)
    assert pace.ends_at == pytest.approx(1010 + 80)
    pace.add(1010.5, 0.2, 1030)
    assert pace.ends_at == pytest.approx(1010 + 80)


def test_the_pace_is_measured_again_after_a_restart() -> None:
    pace = Pace()
    for at, fraction in ((0, 0.0), (10, 0.5), (20, 0.3)):
        pace.add(at, fraction, at)
    assert pace.ends_at is None
    pace.add(30, 0.4, 30)
    assert pace.ends_at == pytest.approx(30 + 60)


def test_a_member_whose_clock_is_wrong_does_not_change_when_the_job_ends_here() -> None:
    pace = Pace()
    pace.add(5000, 0.0, 100)
    pace.add(5010, 0.5, 110)
    assert pace.ends_at == pytest.approx(120)
