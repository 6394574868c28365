"""The ranks of members: their numbers, else the numeric order of their addresses."""

from __future__ import annotations

import random

import pytest

from launcher.discovery.ranks import joint_identity, make_roster, restore_roster
from launcher.errors import Exit, Failure
from launcher.model import Member, Shape


def member(address: str, rank: int | None = None) -> Member:
    return Member(f"pod-{address}", f"uid-{address}", address, address, rank)


def order(*members: Member) -> list[str]:
    mixed = list(members)
    random.Random(7).shuffle(mixed)
    made = make_roster(mixed).members
    assert [each.rank for each in made] == list(range(len(made)))
    return [each.address for each in made]


def test_without_numbers_the_numeric_order_of_addresses_decides() -> None:
    assert order(member("10.0.0.10"), member("10.0.0.9"), member("9.255.255.255")) == [
        "9.255.255.255",
        "10.0.0.9",
        "10.0.0.10",
    ]
    assert order(member("fd00::10"), member("fd00::9"), member("fd00::a")) == ["fd00::9", "fd00::a", "fd00::10"]


def test_numbers_decide_if_there_are_any() -> None:
    members = [member(f"10.0.0.{99 - rank}", rank) for rank in range(12)]
    assert order(*members)[10] == "10.0.0.89"


def test_with_roles_trainers_come_first_and_all_controllers_together_are_the_identity() -> None:
    members = [
        Member("s", "", "10.0.0.1", "", role="pserver", controller="s-uid"),
        Member("t-b", "", "10.0.0.3", "", role="trainer", controller="t-uid"),
        Member("t-a", "", "10.0.0.2", "", role="trainer", controller="t-uid"),
    ]
    made = make_roster(members)
    assert [each.pod for each in made.members] == ["t-a", "t-b", "s"]
    assert joint_identity(made) == "t-uid+s-uid"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("10.0.0.1", 0), member("10.0.0.2")], "some pods of this job have a number, other pods have no number"),
        ([member("10.0.0.1", 1), member("10.0.0.2", 1)], "the same number: 1"),
        ([member("10.0.0.1"), member("10.0.0.1")], "the same address: 10.0.0.1"),
        ([member("10.0.0.1", 0), member("10.0.0.2", 2)], "expected 0 to 1"),
    ],
)
def test_members_without_a_common_order_are_an_error(members: list[Member], said: str) -> None:
    with pytest.raises(Failure, match=said) as caught:
        make_roster(members)
    assert caught.value.code is Exit.CONFIG


def test_the_replacement_of_a_pod_without_a_number_takes_its_rank_and_the_others_keep_theirs() -> None:
    kept = {"a": 0, "b": 1, "c": 2, "d": 3}
    members = [
        Member(uid, uid, f"10.0.0.{last}", "") for uid, last in [("d", 9), ("new", 10), ("b", 30), ("newer", 100)]
    ]
    made = restore_roster(members, kept, Shape(4))
    assert [each.pod for each in made.members] == ["new", "b", "newer", "d"]


def test_a_replacement_takes_a_rank_of_its_role() -> None:
    kept = {"t": 0, "gone": 1, "s": 2}
    members = [
        Member("s", "s", "10.0.0.1", "", role="pserver"),
        Member("t", "t", "10.0.0.9", "", role="trainer"),
        Member("new", "new", "10.0.0.2", "", role="trainer"),
    ]
    assert [each.pod for each in restore_roster(members, kept, Shape(2, 1)).members] == ["t", "new", "s"]
