"""The shares add up to the wall time, and only time that ended in a kept pass is goodput."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from launcher.report import lanes
from launcher.report.accounts import KEPT, REPEATED, RUNNING, Accounts, account
from launcher.report.facts import Facts, Lease
from launcher.report.verdict import judge

Made = Callable[..., Facts]


def accounts_of(facts: Facts) -> Accounts:
    verdict = judge(facts)
    return account(facts, verdict, lanes.end_of_axis(facts, verdict))


@pytest.mark.parametrize("ends", ["complete", "failed", "running"])
def test_the_shares_add_up_to_the_wall_time(made: Made, ends: str) -> None:
    found = accounts_of(made(ends=ends))
    assert sum(seconds for _, seconds in found.parts) == pytest.approx(found.wall, abs=1.0)


def test_goodput_is_the_time_that_ended_in_a_kept_pass(made: Made) -> None:
    found = accounts_of(made())  # 13 kept passes of 40 s; the first one of a generation begins with its training
    kept = [row for row in found.passes if row.fate == KEPT]
    assert len(kept) == 13
    assert found.goodput == pytest.approx(sum(row.seconds for row in kept) / found.wall)
    assert found.goodput == pytest.approx(13 * 40 / 737, abs=0.02)


def test_a_pass_that_a_later_generation_trained_again_is_lost(made: Made) -> None:
    found = accounts_of(made())
    lost = [(row.done.generation, row.done.number) for row in found.passes if row.fate == REPEATED]
    assert lost == [(1, 5), (3, 10)]


def test_a_restart_costs_lost_work_and_the_pause(made: Made) -> None:
    first, second = accounts_of(made()).restarts[:2]
    assert first.lost == pytest.approx(20, abs=1)  # half a pass after the newest kept pass
    assert first.pause == pytest.approx(5.7, abs=1)
    assert first.cost == pytest.approx(first.lost + (first.pause or 0))
    assert second.lost == pytest.approx(60, abs=1)  # one pass more was not saved


def test_passes_of_a_failed_job_count_only_if_they_are_saved(made: Made) -> None:
    found = accounts_of(made(ends="failed", generations=2))
    assert [row.fate for row in found.passes] == [KEPT] * 5 + [REPEATED]


def test_the_newest_passes_of_a_running_job_are_not_saved_yet(made: Made) -> None:
    facts = made(ends="running", generations=1)
    facts.lease = Lease(False, 1.0)
    facts.saved = 1
    assert [row.fate for row in accounts_of(facts).passes] == [KEPT, KEPT, RUNNING]


def test_without_any_logged_pass_the_goodput_is_zero_or_unknown(made: Made) -> None:
    facts = made(ends="failed", generations=1, passes=0)
    facts.saved = None
    assert accounts_of(facts).goodput == 0
    facts.saved = 3
    assert accounts_of(facts).goodput is None


def test_a_change_of_size_is_no_restart(elastic: Facts) -> None:
    found = accounts_of(elastic)
    assert [row.generation.number for row in found.restarts] == [1, 3]
    assert [row.generation.number for row in found.changes_of_size] == [0, 2]
    assert [row.is_failed for row in found.generations] == [False, True, False, True, False]
    assert sum(seconds for _, seconds in found.parts) == pytest.approx(found.wall, abs=1.0)
    assert dict(found.parts)["changes of size"] == pytest.approx(5.7 + 13.7, abs=2)
