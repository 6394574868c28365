"""Members check whether they can reach the next one. The hub names the pairs that cannot, and decides nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from dataclasses import replace

import pytest

from launcher.gang import Finish, GangSettings, Stop
from launcher.gang.connection import Connection
from launcher.gang.cuts import Cuts
from launcher.gang.messages import unreached
from launcher.gang.protocol import Malformed, Message
from launcher.gang.seats import Seat
from launcher.model import Member
from tests.support.members import Node, Scene, died, in_loop, settings, until

NOWHERE = "127.0.0.99"  # nothing listens there


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def host(rank: int) -> str:
    return f"127.0.0.{rank + 1}"


async def gang(scene: Scene, size: int, unreachable: int | None = None, **changes: float) -> list[Node]:
    """Return a gang that trains. All members listen on one port. No other member reaches the unreachable one."""
    port, timing = free_port(), {"heartbeat_every": 0.1, "silence": 0.6, **changes}
    nodes = []
    for rank in range(size):
        config = settings(size, host(rank), port=port, **timing)
        address = NOWHERE if rank == unreachable else host(rank)
        nodes.append(await scene.node(rank, config, address=address))
    await scene.joined(nodes)
    for node in nodes:
        node.ready()
    return nodes


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


@in_loop
async def test_the_hub_names_two_members_that_cannot_reach_each_other(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = await gang(scene, 3, unreachable=2)
        await until(lambda: named(caplog), "a warning")
        place = f"{NOWHERE}:{nodes[0].gang.port}"
        (warning,) = named(caplog)
        assert warning.startswith(f"rank 1 cannot reach rank 2 at {place}: Connection refused for ")
        assert "but both reach the hub: check network policies between these pods (pod-1, pod-2)" in warning
        cause = died("trainer", 0, 3)
        nodes[0].failed(cause)
        for node in nodes:
            stopped_by = await node.told_to_stop()
            assert stopped_by == replace(cause, what=stopped_by.what)
            assert stopped_by.what == (
                f"it died; rank 1 cannot reach rank 2 at {place} (Connection refused): check network policies between "
                "these nodes"
            )


@in_loop
async def test_a_pair_that_cannot_reach_each_other_changes_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = await gang(scene, 4, unreachable=2)
        await until(lambda: named(caplog), "a warning")
        await asyncio.sleep(0.5)
        assert len(named(caplog)) == 1, "a pair is named once"
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop)


@in_loop
async def test_members_that_reach_each_other_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = await gang(scene, 3)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 1.2)
        assert named(caplog) == []
        assert [node.gang.refusals.counts for node in nodes] == [{}, {}, {}]
        cause = died("trainer", 0, 3)
        nodes[0].failed(cause)
        assert await nodes[2].told_to_stop() == cause


@in_loop
async def test_the_hub_checks_the_first_member(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        await gang(scene, 2, unreachable=1)
        await until(lambda: named(caplog), "a warning")
        assert named(caplog)[0].startswith("rank 0 cannot reach rank 1")


@in_loop
async def test_a_program_that_answers_on_the_port_of_a_member_is_not_this_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Scene() as scene:
        port = free_port()
        server = await asyncio.start_server(lambda _, writer: writer.write(b"HTTP/1.1 400\r\n"), NOWHERE, port)
        scene.others.append(server)
        nodes = []
        for rank in range(3):
            config = settings(3, host(rank), port=port, heartbeat_every=0.1, silence=0.6)
            nodes.append(await scene.node(rank, config, address=NOWHERE if rank == 2 else host(rank)))
        await scene.joined(nodes)
        await until(lambda: named(caplog), "a warning")
        assert "another program, or a launcher of another version, answers there" in named(caplog)[0]


# ---- what the hub makes of the reports -------------------------------------------------------------------------------


SETTINGS = GangSettings(4, 7168, silence=120.0)


def seats() -> list[Seat]:
    """Return the seats of four members that the hub has heard for ten minutes."""
    now, found = time.monotonic(), []
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
    members[2].connection.cut_off_at = now - 100
    cuts.on_unreached(members[1], report(2))
    members[2].connection.cut_off_at = now - 130
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
    members = [*seats(), *seats()[1:]]
    for rank, seat in enumerate(members):
        seat.member = replace(seat.member, rank=rank)
    cuts = Cuts(replace(SETTINGS, size=7), members)
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
    cuts = Cuts(replace(SETTINGS, pservers=2), members)
    cuts.on_unreached(members[1], report(2))
    assert "trainer 1 cannot reach pserver 0 at 10.0.0.2:7168" in explained(cuts)
