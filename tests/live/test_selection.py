"""Which members are shown if there is no room for all."""

from __future__ import annotations

import math

from launcher.live.selection import choose, summary
from launcher.live.view import MemberView
from launcher.model import BOTH, Numbers


def members(count: int = 1000) -> list[MemberView]:
    return [MemberView(BOTH, rank, phase="training", numbers=numbers(100.0)) for rank in range(count)]


def numbers(speed: float, loss: float = 0.5) -> Numbers:
    return Numbers(loss=loss, examples_per_second=speed)


def test_all_members_are_shown_if_there_is_room() -> None:
    assert choose(members(5), 5) == (members(5), [])


def test_members_that_differ_are_shown_in_the_order_of_their_ranks() -> None:
    found = members()
    found[900] = MemberView(BOTH, 900, phase="failed")
    found[500] = MemberView(BOTH, 500, phase="waiting")
    found[700] = MemberView(BOTH, 700, phase="training", numbers=numbers(50.0))
    found[600] = MemberView(BOTH, 600, phase="training", numbers=numbers(100.0, math.nan))
    shown, hidden = choose(found, 7)
    assert [member.rank for member in shown] == [0, 1, 500, 600, 700, 900]
    assert len(hidden) == 994
    assert [member.rank for member in choose(found, 2)[0]] == [900]
    assert choose(found, 0)[0] == []


def test_the_summary_counts_phases_and_names_the_spread_of_the_speed() -> None:
    found = members(3)
    found[2] = MemberView(BOTH, 2, phase="training", numbers=numbers(80.0))
    assert summary([*found, MemberView(BOTH, 3, phase="waiting")]) == "3 training, 1 waiting; 80 to 100 examples/s each"
    assert summary([MemberView(BOTH, 3, phase="waiting")]) == "1 waiting"
