"""What the hub makes of the reports about members that cannot reach each other."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest

from launcher.gang import GangSettings
from launcher.gang.connection import Connection
from launcher.gang.cuts import Cuts
from launcher.gang.messages import unreached
from launcher.gang.protocol import Malformed, Message
from launcher.gang.seats import Seat, Seats
from launcher.model import PSERVER, Member
from tests.support.members import died, in_loop

SETTINGS = GangSettings(4, 7168, silence=120.0)


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def seats() -> Seats:
    """Return the seats of four members that the hub has heard for ten minutes."""
    now, found = time.monotonic(), Seats()
    for rank in range(4):
        seat = Seat(Member(f"pod-{rank}", "", f"10.0.0.{rank}", "", rank), str(rank), connected_at=now - 600)
        if rank:
            seat.connection = Connection(lambda *_: None, lambda _: None)
        found.append(seat)
    return found


def report(rank: int, age: float = 130.0) -> Message:
    return unreached(rank, age, "no answer in time")


def explained(cuts: Cuts, kind: str = "trainer") -> str:
    return cuts.explain(died(kind, 0, 3)).what


@in_loop
async def test_a_pair_counts_only_if_the_hub_has_heard_both_all_the_time(caplog: pytest.LogCaptureFixture) -> None:
    members = seats()
    cuts = Cuts(SETTINGS, members)
    now = time.monotonic()
    cuts.on_unreached(members[1], report(2, age=119.0))
    members[2].connected_at = now - 100  # it has reconnected since
    cuts.on_unreached(members[1], report(2))
    members[2].connected_at = now - 600
    assert members[2].connection is not None
    members[2].connection.unsure_at = now - 100
    cuts.on_unreached(members[1], report(2))
    members[2].connection.unsure_at = now - 130
    members[2].connection.heard_at = now - 20
    cuts.on_unreached(members[1], report(2))
    members[2].connection.heard_at = now
    members[1].connection = None
    cuts.on_unreached(members[1], report(2))
    assert (named(caplog), explained(cuts)) == ([], "it died")
    members[1].connection = Connection(lambda *_: None, lambda _: None)
    cuts.on_unreached(members[1], report(2))
    assert len(named(caplog)) == 1
    assert "rank 1 cannot reach rank 2 at 10.0.0.2:7168 (no answer in time)" in explained(cuts)


@in_loop
async def test_a_pair_that_reaches_each_other_again_is_not_named_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    members = seats()
    cuts = Cuts(SETTINGS, members)
    cuts.on_unreached(members[1], report(2))
    assert explained(cuts) != "it died"
    later = time.monotonic() + 81
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert explained(cuts) == "it died"


@pytest.mark.parametrize(
    ("kind", "is_named"), [("trainer", True), ("stalled", True), ("lost", True), ("staging", False), ("stopped", False)]
)
@in_loop
async def test_only_causes_that_a_cut_may_have_name_the_pairs(kind: str, is_named: bool) -> None:
    members = seats()
    cuts = Cuts(SETTINGS, members)
    cuts.on_unreached(members[0], report(1))
    assert ("rank 0 cannot reach rank 1" in explained(cuts, kind)) == is_named


@in_loop
async def test_a_cause_names_only_some_of_many_pairs() -> None:
    members = Seats([*seats(), *seats()[1:]])
    for rank, seat in enumerate(members):
        seat.member = replace(seat.member, rank=rank)
    cuts = Cuts(SETTINGS, members)
    for rank in range(6):
        cuts.on_unreached(members[rank], report(rank + 1))
    what = explained(cuts)
    assert what.count("cannot reach") == 3
    assert " and 3 more pairs: check network policies" in what


@pytest.mark.parametrize("rank", [1, 4])
@in_loop
async def test_a_report_about_itself_or_an_unknown_member_is_malformed(rank: int) -> None:
    members = seats()
    with pytest.raises(Malformed):
        Cuts(SETTINGS, members).on_unreached(members[1], report(rank))


@in_loop
async def test_members_with_roles_are_named_by_their_roles() -> None:
    members = seats()
    for seat in members[2:]:
        seat.member = replace(seat.member, role=PSERVER)
    cuts = Cuts(SETTINGS, members)
    cuts.on_unreached(members[1], report(2))
    assert "trainer 1 cannot reach pserver 0 at 10.0.0.2:7168" in explained(cuts)
