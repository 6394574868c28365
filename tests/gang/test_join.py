"""Members join a gang: ranks, refusals, replacements, and joins that fail or are cancelled."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import Finish, JoinFailed, Lead, Train, handshake
from launcher.gang.events import MissingMembers
from tests.support.members import (
    BEGUN,
    Node,
    Scene,
    died,
    in_loop,
    settings,
    until,
)
from tests.support.wire import Wire


async def train_to_the_end(nodes: list[Node]) -> None:
    """Go from a complete roster to Finish, and check each step that all must have reached before the next one."""
    late = nodes[-1]
    for node in nodes:
        node.gang.report_staged()
    for node in nodes[:-1]:
        node.gang.report_serving()
    await asyncio.sleep(0.03)
    assert [node.events for node in nodes] == [[BEGUN, Lead()], *[[BEGUN]] * (len(nodes) - 1)], (
        "trains before all serve"
    )
    late.gang.report_serving()
    for node in nodes:
        await node.hears(Train())
    for node in nodes[:-1]:
        node.gang.report_trained()
    await asyncio.sleep(0.03)
    assert not any(node.has(Finish) for node in nodes), "finished before all have trained"
    late.gang.report_trained()
    for node in nodes:
        await node.hears(Finish())
        assert node.events == [BEGUN, *([Lead()] if node is nodes[0] else []), Train(), Finish()]
        assert node.completions == (node is nodes[0])


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.7", "::1"])
@in_loop
async def test_three_numbered_members_train_and_finish_together(listen: str) -> None:
    async with Scene() as scene:
        nodes = await scene.gang(3, settings(3, listen))
        assert [node.rank for node in nodes] == [0, 1, 2]
        assert nodes[0].roster
        assert nodes[0].roster.members == tuple(node.me for node in nodes)
        assert {node.roster for node in nodes} == {nodes[0].roster}
        await train_to_the_end(nodes)


@pytest.mark.parametrize("prefix", ["10.0.0.", "fd00::"])
@in_loop
async def test_ranks_without_numbers_are_the_numeric_order_of_addresses(prefix: str) -> None:
    async with Scene() as scene:
        addresses = [f"{prefix}{end}" for end in ("9", "10", "100")]
        nodes = [await scene.node(None, settings(3), address=address, pod=f"x{address}") for address in addresses]
        await scene.joined([nodes[0], nodes[2], nodes[1]])
        assert [node.rank for node in nodes] == [0, 1, 2]
        for node in nodes:
            assert node.roster
            assert [(member.rank, member.address) for member in node.roster.members] == list(enumerate(addresses))
        await train_to_the_end(nodes)


@in_loop
async def test_a_gang_of_one_needs_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("listens"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connects"))
    async with Scene() as scene:
        await train_to_the_end(await scene.gang(1))


@in_loop
async def test_a_gang_works_without_a_secret_and_finds_its_hub_by_name() -> None:
    async with Scene() as scene:
        hub, member = await scene.node(0, settings(2)), await scene.node(1, settings(2))
        await asyncio.gather(hub.join(None, secret=None), member.join(("localhost", hub.gang.port), secret=None))
        await train_to_the_end([hub, member])


@in_loop
async def test_by_default_the_hub_listens_on_all_addresses_of_both_families() -> None:
    async with Scene() as scene:
        config = replace(settings(3), listen=None)
        nodes = [await scene.node(rank, config) for rank in range(3)]
        port = nodes[0].gang.port
        await asyncio.wait_for(
            asyncio.gather(nodes[0].join(None), nodes[1].join(("127.0.0.3", port)), nodes[2].join(("::1", port))), 5
        )


@in_loop
async def test_all_members_know_the_missing_ranks_and_a_late_member_completes_the_gang() -> None:
    async with Scene() as scene:
        config = settings(4, heartbeat_every=0.05)
        nodes = [await scene.node(rank, config) for rank in range(4)]
        assert nodes[0].gang.missing() is None
        early = asyncio.gather(nodes[0].join(None), nodes[1].join(nodes[0].place))
        for node in nodes[:2]:
            await until(lambda node=node: str(node.gang.missing()) == "2 of 4; ranks 2, 3 have not joined")  # type: ignore[misc]
        third = asyncio.ensure_future(nodes[2].join(nodes[0].place))
        for node in nodes[:3]:
            await until(lambda node=node: str(node.gang.missing()) == "3 of 4; rank 3 has not joined")  # type: ignore[misc]
        await nodes[3].join(nodes[0].place)
        await asyncio.wait_for(asyncio.gather(early, third), 5)


@in_loop
async def test_the_missing_ranks_are_known_after_a_cancelled_join() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3)) for rank in range(2)]
        joins = [asyncio.ensure_future(nodes[0].join(None)), asyncio.ensure_future(nodes[1].join(nodes[0].place))]
        await until(lambda: nodes[1].gang.missing())
        for join in joins:
            join.cancel()
        await asyncio.wait(joins)
        assert str(nodes[0].gang.missing()) == str(nodes[1].gang.missing()) == "2 of 3; rank 2 has not joined"


@in_loop
async def test_a_member_may_connect_before_the_hub_knows_that_it_is_the_hub() -> None:
    async with Scene() as scene:
        hub, member = await scene.node(0, settings(2)), await scene.node(1, settings(2))
        joining = asyncio.ensure_future(member.join(hub.place))
        await asyncio.wait([joining], timeout=0.3)
        assert not joining.done()
        await asyncio.gather(hub.join(None), joining)


@in_loop
async def test_joining_a_launcher_that_never_becomes_the_hub_fails() -> None:
    async with Scene() as scene:
        hub, member = await scene.node(0, settings(2)), await scene.node(1, settings(2, reach_within=0.3))
        with pytest.raises(JoinFailed, match="not the hub"):
            await member.join(hub.place)


@in_loop
async def test_joining_a_hub_that_cannot_be_reached_fails() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.4))
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            place = deaf.getsockname()
            with pytest.raises(JoinFailed, match=rf"127\.0\.0\.1:{place[1]} cannot be reached: Connection refused"):
                await member.join(place)
        with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(JoinFailed, match="no answer in time"):
            await member.join(silent.getsockname()[:2])
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await member.join(("no-such-host.invalid", 1))


@in_loop
async def test_a_rank_of_another_member_is_refused_until_this_member_leaves() -> None:
    async with Scene() as scene:
        config = settings(3)
        hub, first = await scene.node(0, config), await scene.node(1, config, uid="a")
        second = await scene.node(1, config, pod="replacement", uid="b")
        last = await scene.node(2, config)
        leading = asyncio.ensure_future(hub.join(None))
        holding = asyncio.ensure_future(first.join(hub.place))
        await until(first.gang.missing)
        for rank, held_by in ((1, "pod-1"), (0, "pod-0")):
            second.me = replace(second.me, rank=rank)
            with pytest.raises(JoinFailed, match=f"rank {rank} belongs to pod {held_by}"):
                await second.join(hub.place)
        holding.cancel()
        await until(lambda: str(hub.gang.missing()) == "1 of 3; ranks 1, 2 have not joined")
        second.me = replace(second.me, rank=1)
        await asyncio.gather(second.join(hub.place), last.join(hub.place), leading)
        assert hub.roster
        assert [member.pod for member in hub.roster.members] == ["pod-0", "replacement", "pod-2"]
        await train_to_the_end([hub, second, last])


@in_loop
async def test_a_restarted_container_replaces_its_predecessor() -> None:
    async with Scene() as scene:
        config = settings(3)
        hub, before = await scene.node(0, config), await scene.node(1, config, uid="same")
        after, last = await scene.node(1, config, uid="same"), await scene.node(2, config)
        leading = asyncio.ensure_future(hub.join(None))
        stuck = asyncio.ensure_future(before.join(hub.place))
        await until(before.gang.missing)
        entering = asyncio.ensure_future(after.join(hub.place))
        await until(after.gang.missing)
        stuck.cancel()
        await asyncio.gather(last.join(hub.place), entering, leading)
        await train_to_the_end([hub, after, last])


@pytest.mark.parametrize(
    ("rank", "size", "reason"),
    [(2, 2, "rank 2, but there are only 2"), (1, 3, "CONF_PADDLE_GRADIENT_NUM"), (None, 2, "no|a number")],
)
@in_loop
async def test_a_member_that_does_not_fit_gets_the_reason_for_the_refusal(
    rank: int | None, size: int, reason: str
) -> None:
    async with Scene() as scene:
        hub, member = await scene.node(0, settings(2)), await scene.node(rank, settings(size), address="10.0.0.1")
        leading = asyncio.ensure_future(hub.join(None))
        await asyncio.sleep(0)
        with pytest.raises(JoinFailed, match=reason):
            await member.join(hub.place)
        leading.cancel()


@in_loop
async def test_the_lowest_address_becomes_the_hub() -> None:
    async with Scene() as scene:
        low, high = [await scene.node(None, settings(3), address=f"10.0.0.{end}", pod=f"pod-{end}") for end in (9, 10)]
        other = await scene.node(None, settings(3), address="10.0.0.11", pod="pod-11")
        leading = asyncio.ensure_future(high.join(None))
        waiting = asyncio.ensure_future(other.join(high.place))
        await until(other.gang.missing)
        with pytest.raises(JoinFailed, match=r"pod-9 has a lower address, 10\.0\.0\.9"):
            await low.join(high.place)
        for join in (leading, waiting):
            with pytest.raises(JoinFailed, match="not the hub"):
                await asyncio.wait_for(join, 5)
        await scene.joined([low, high, other])
        await train_to_the_end([low, high, other])


@in_loop
async def test_a_join_can_be_cancelled_and_begun_again() -> None:
    async with Scene() as scene:
        hub, member = await scene.node(0, settings(3)), await scene.node(1, settings(3))
        last = await scene.node(2, settings(3))
        for _ in range(2):
            joins = [asyncio.ensure_future(hub.join(None)), asyncio.ensure_future(member.join(hub.place))]
            await until(lambda: hub.gang.missing() and hub.gang.missing().joined == 2)  # type: ignore[union-attr]
            joins[1].cancel()
            await until(lambda: hub.gang.missing() and hub.gang.missing().joined == 1)  # type: ignore[union-attr]
            joins[0].cancel()
            await asyncio.wait(joins)
        await scene.joined([hub, member, last])
        await train_to_the_end([hub, member, last])


@in_loop
async def test_a_member_connects_again_if_its_connection_is_cut_before_the_welcome() -> None:
    async with Scene() as scene:
        hub, member, last = [await scene.node(rank, settings(3, reach_within=0.8)) for rank in range(3)]
        relay = await scene.relay(hub.place)
        joins = asyncio.gather(hub.join(None), member.join(relay.place))
        await until(member.gang.missing)
        deadline = time.monotonic() + 0.8
        await until(lambda: time.monotonic() > deadline)
        relay.cut()
        await until(lambda: relay.connections == 2)
        await last.join(hub.place)
        await asyncio.wait_for(joins, 5)
        await train_to_the_end([hub, member, last])


@in_loop
async def test_reports_before_the_join_are_sent_after_it() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        for node in nodes:
            node.ready()
        await scene.joined(nodes)
        for node in nodes:
            await node.hears(Train())


@pytest.mark.parametrize("rank", [0, 1])
@in_loop
async def test_a_failure_before_the_join_is_reported_after_it(rank: int) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        cause = died("staging", rank, 66)
        nodes[rank].gang.report_failed(cause, time.monotonic())
        await scene.joined(nodes)
        for node in nodes:
            assert await node.told_to_stop() == cause


@in_loop
async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Node(0, replace(settings(2), port=port))
        with pytest.raises(Failure, match=f"LAUNCHER_GANG_PORT: cannot listen on port {port} of 127.0.0.1: ") as caught:
            await node.gang.listen()
        assert caught.value.code == Exit.CONFIG


@in_loop
async def test_a_member_with_long_names_joins() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2), pod=str(rank) * 1024, uid="u" * 1024) for rank in range(2)]
        await asyncio.gather(nodes[0].join(None), nodes[1].join(nodes[0].place))
        await train_to_the_end(nodes)


@in_loop
async def test_a_member_learns_that_the_gang_is_not_complete() -> None:
    async with Scene() as scene:
        hub = await scene.node(0, settings(3))
        leading = asyncio.ensure_future(hub.join(None))
        await asyncio.sleep(0)
        member = await Wire.connect(hub.place)
        await member.join(2, 3)
        assert handshake.read_waiting(await member.receive()) == MissingMembers(2, 3, (1,))
        leading.cancel()


@in_loop
async def test_a_gang_that_is_complete_soon_is_not_told_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "WAITING_AFTER", 60)
    async with Scene() as scene:
        hub = await scene.node(0, settings(3))
        leading = asyncio.ensure_future(hub.join(None))
        await asyncio.sleep(0)
        members = [await Wire.connect(hub.place) for _ in range(2)]
        for rank, member in enumerate(members, 1):
            await member.join(rank, 3)
        for member in members:
            assert (await member.receive())["word"] == "welcome"
        await leading
