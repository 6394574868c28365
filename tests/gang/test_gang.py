"""A gang joins, starts together, fails together with the first cause named, and ends together."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import Finish, HubLost, JoinFailed, Lead, Stop, Train, Verdict, handshake, messages, protocol
from launcher.gang.connection import Connection, Heartbeat, close_gracefully
from launcher.gang.events import Credentials
from launcher.gang.protocol import ALIVE, KNOWN_PEER_LIMIT, encode
from launcher.model import Cause, Shape
from tests.support.members import BEGUN, SECRET, Node, Relay, Scene, died, in_loop, settings, until

# ---- joining, and a run without faults -------------------------------------------------------------------------------


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
async def test_by_default_it_listens_on_all_addresses_of_both_families() -> None:
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
async def test_a_rank_that_is_held_is_refused_until_its_holder_leaves() -> None:
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
            with pytest.raises(JoinFailed, match=f"rank {rank} is held by pod {held_by}"):
                await second.join(hub.place)
        holding.cancel()
        await until(lambda: str(hub.gang.missing()) == "1 of 3; ranks 1, 2 have not joined")
        second.me = replace(second.me, rank=1)
        await asyncio.gather(second.join(hub.place), last.join(hub.place), leading)
        assert hub.roster
        assert [member.pod for member in hub.roster.members] == ["pod-0", "replacement", "pod-2"]
        await train_to_the_end([hub, second, last])


@in_loop
async def test_a_container_that_started_again_takes_the_place_of_its_predecessor() -> None:
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
async def test_a_member_that_cannot_belong_is_told_why(rank: int | None, size: int, reason: str) -> None:
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


# ---- completion ------------------------------------------------------------------------------------------------------


@in_loop
async def test_finish_comes_after_the_mark_of_completion() -> None:
    async with Scene() as scene:
        marked = asyncio.Event()
        nodes = await scene.training(2, settings(2, reports_within=0.01), complete=marked.wait)
        for node in nodes:
            node.gang.report_trained()
        await until(lambda: nodes[0].completions)
        nodes[0].gang.report_failed(died("pserver", 0, 137), time.monotonic() - 1)
        await asyncio.sleep(0.05)
        assert not any(node.has(Finish) or node.has(Stop) for node in nodes)
        marked.set()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop), "what is complete cannot fail any more"


async def _stalled() -> None:
    await asyncio.Event().wait()


async def _read_only() -> None:
    raise OSError(30, "Read-only file system")


@pytest.mark.parametrize(("complete", "warning"), [(_stalled, "not written after"), (_read_only, "Read-only")])
@in_loop
async def test_a_mark_that_cannot_be_written_is_a_warning(
    complete: Callable[[], Awaitable[None]], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Scene() as scene:
        nodes = await scene.training(2, settings(2, complete_within=0.1), complete=complete)
        for node in nodes:
            node.gang.report_trained()
        for node in nodes:
            await node.hears(Finish())
        assert any(warning in line for line in caplog.messages)


@in_loop
async def test_finish_arrives_though_the_hub_closes_at_once() -> None:
    async with Scene() as scene:
        hub = scene.process(0, 3, None, trained=True, until="Finish")
        place = ("127.0.0.1", await hub.line())
        members = [await scene.node(rank, settings(3)) for rank in (1, 2)]
        await asyncio.gather(*(member.join(place) for member in members))
        for member in members:
            member.ready()
            member.gang.report_trained()
        assert await hub.code() == 0
        for member in members:
            await member.hears(Finish())
            assert not member.has(HubLost)


# ---- the first cause -------------------------------------------------------------------------------------------------


async def stopped_by(nodes: list[Node], cause: Cause) -> None:
    for node in nodes:
        assert await node.told_to_stop() == cause
        assert [event for event in node.events if isinstance(event, Stop)] == [Stop(cause)]


@pytest.mark.parametrize("culprit", [0, 1, 2])
@in_loop
async def test_a_killed_pserver_is_named_and_not_the_processes_that_die_of_it(culprit: int) -> None:
    """20 of 20 runs. Rank 0, the hub, is the culprit, a victim, or a bystander that hears of it last."""
    dice = random.Random(culprit)
    victims = [rank for rank in range(3) if rank != culprit]

    async def one_run(scene: Scene) -> None:
        # A loaded machine delays reports, so they are collected for longer than by default.
        nodes = await scene.training(3, settings(3, reports_within=1.0, verdict_within=5))
        right = died("pserver", culprit, 137, "killed")
        deaths = [(0.0, culprit, right)]
        # All trainers die of it; the other pservers usually die, too.
        deaths += [
            (dice.uniform(0.002, 0.25), rank, died("trainer", rank, dice.choice((134, 139)))) for rank in range(3)
        ]
        deaths += [(dice.uniform(0.01, 0.25), rank, died("pserver", rank, dice.choice((134, 141)))) for rank in victims]
        if culprit == 2:
            deaths = [death for death in deaths if death[1] != 0]

        async def report(death: tuple[float, int, Cause]) -> None:
            after, rank, cause = death
            await asyncio.sleep(after)
            died_at = time.monotonic()
            # A launcher notices a death late, and here it notices the first one later than the others.
            await asyncio.sleep(dice.uniform(0, 0.2) if cause is right else dice.uniform(0, 0.03))
            nodes[rank].gang.report_failed(cause, died_at + dice.uniform(-0.005, 0.005))

        await asyncio.gather(*map(report, deaths))
        await stopped_by(nodes, right)

    async with Scene() as scene:
        await asyncio.gather(*(one_run(scene) for _ in range(20)))


@in_loop
async def test_the_oldest_death_is_named_though_it_is_reported_last() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        now = time.monotonic()
        nodes[0].gang.report_failed(died("trainer", 0, 3), now - 0.1)
        await asyncio.sleep(0.05)
        first = died("trainer", 1, 139)
        nodes[1].gang.report_failed(first, now - 0.3)
        await stopped_by(nodes, first)


@in_loop
async def test_the_verdict_is_judged_once_and_never_changes() -> None:
    async with Scene() as scene:
        nodes = await scene.training(
            2, settings(2, reports_within=0.01), judge=lambda cause: (replace(cause, final=True), Verdict.STOP)
        )
        cause = died("trainer", 1, 3)
        nodes[1].gang.report_failed(cause, time.monotonic())
        await stopped_by(nodes, replace(cause, final=True))
        for node in nodes:
            node.gang.report_failed(died("pserver", 0, 137), time.monotonic() - 10)
            node.gang.report_trained()
        await asyncio.sleep(0.05)
        await stopped_by(nodes, replace(cause, final=True))
        assert nodes[0].judged == [cause]
        assert nodes[0].completions == 0


@in_loop
async def test_a_judge_that_fails_does_not_keep_the_gang_from_stopping(caplog: pytest.LogCaptureFixture) -> None:
    def broken(cause: Cause) -> tuple[Cause, Verdict]:
        raise ZeroDivisionError

    async with Scene() as scene:
        nodes = await scene.training(2, judge=broken)
        cause = died("trainer", 1, 3)
        nodes[1].gang.report_failed(cause, time.monotonic())
        await stopped_by(nodes, cause)
        assert any("ZeroDivisionError" in line for line in caplog.messages)


@in_loop
async def test_a_lost_launcher_is_named_and_not_the_trainers_that_died_of_it() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3, leave_within=60)) for rank in range(2)]
        lost = scene.process(2, 3, nodes[0].place)
        await lost.line()
        await scene.joined(nodes)
        for node in nodes:
            node.ready()
        for node in nodes:
            await node.hears(Train())
        lost.send(signal.SIGKILL)
        await lost.code()
        for node in nodes:
            node.gang.report_failed(died("trainer", node.rank, 139), time.monotonic())
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 2, "pod-2", Exit.PEER_LOST)
            await node.hears(Finish())


# ---- leaving after a stop --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1])
@in_loop
async def test_the_others_leave_once_the_culprit_has(culprit: int) -> None:
    async with Scene() as scene:
        nodes = await scene.training(3, settings(3, leave_within=60))
        nodes[culprit].gang.report_failed(died("trainer", culprit, 3), time.monotonic())
        for node in nodes:
            await node.told_to_stop()
        for node in nodes:
            if node.rank != culprit:
                node.gang.report_stopped()
        await asyncio.sleep(0.03)
        assert not any(node.has(Finish) for node in nodes)
        nodes[culprit].gang.report_stopped()
        await nodes[culprit].gang.close()
        for node in nodes:
            if node.rank != culprit:
                await node.hears(Finish())


@in_loop
async def test_the_others_leave_when_the_culprit_is_gone_without_a_word() -> None:
    async with Scene() as scene:
        nodes = await scene.training(3, settings(3, leave_within=60))
        nodes[1].gang.report_failed(died("trainer", 1, 3), time.monotonic())
        await nodes[2].told_to_stop()
        await nodes[1].gang.close()
        for node in (nodes[0], nodes[2]):
            await node.hears(Finish())


@pytest.mark.parametrize(("kind", "bounded"), [("trainer", True), ("stopped", False)])
@in_loop
async def test_waiting_for_the_culprit_has_a_bound_unless_it_was_told_to_stop(kind: str, bounded: bool) -> None:
    async with Scene() as scene:
        nodes = await scene.training(2, settings(2, leave_within=0.05, reports_within=0.05))
        nodes[1].gang.report_failed(died(kind, 1, 143), time.monotonic())
        await nodes[0].told_to_stop()
        if bounded:
            await nodes[0].hears(Finish())
        else:
            await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            assert not nodes[0].has(Finish)
            nodes[1].gang.report_stopped()
            await nodes[0].hears(Finish())


@in_loop
async def test_no_member_waits_if_the_failure_is_not_that_of_one_member() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2, settings(2, leave_within=60))
        nodes[1].gang.report_failed(Cause("peers", None, "", "too few", 75), time.monotonic())
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_after_a_stop_no_member_reconnects_to_a_hub_that_is_gone() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, leave_within=60)
        nodes[1].gang.report_failed(died("trainer", 0, 3), time.monotonic())
        await nodes[1].told_to_stop()
        relay.cut()
        await nodes[1].hears(Finish())
        assert relay.connections == 1


@in_loop
async def test_a_hub_that_closes_after_its_failure_still_reports_it() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        cause = died("stopped", 0, 143)
        nodes[0].gang.report_failed(cause, time.monotonic())
        await nodes[0].gang.close()
        assert await nodes[1].told_to_stop() == cause
        await nodes[1].hears(Finish())


@in_loop
async def test_a_member_that_closes_after_its_failure_still_reports_it() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        cause = died("stopped", 1, 143)
        nodes[1].gang.report_failed(cause, time.monotonic())
        await nodes[1].gang.close()
        assert await nodes[0].told_to_stop() == cause


@in_loop
async def test_everything_sent_arrives_before_a_connection_is_closed_gracefully() -> None:
    loop = asyncio.get_running_loop()
    heard: list[object] = []
    pair = [
        (
            await loop.create_connection(
                lambda: Connection(lambda _, said: heard.append(said), lambda _: None), sock=end
            )
        )[1]
        for end in socket.socketpair()
    ]
    pair[1].line_limit = KNOWN_PEER_LIMIT
    message = {"word": "long", "text": "x" * 4_000_000}
    pair[0].send(encode(message))
    await close_gracefully(pair[:1], 5)
    assert heard == [message]
    await pair[1].ended


@in_loop
async def test_closing_takes_limited_time_though_the_others_do_not_answer() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await scene.joined(nodes, hub=relay.place)
        relay.swallowing = True
        for node in nodes:
            started = time.monotonic()
            await node.gang.close()
            assert time.monotonic() - started < 1.5


# ---- connections that end --------------------------------------------------------------------------------------------


async def cut_gang(scene: Scene, **changes: Any) -> tuple[list[Node], Relay]:
    """Return two members that train, and the relay between rank 1 and the hub."""
    nodes = [await scene.node(rank, settings(2, **changes)) for rank in range(2)]
    relay = await scene.relay(nodes[0].place)
    await scene.joined(nodes, hub=relay.place)
    for node in nodes:
        node.ready()
    for node in nodes:
        await node.hears(Train())
    return nodes, relay


@in_loop
async def test_a_member_reconnects_after_a_cut_and_no_message_is_lost() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        nodes[1].gang.report_trained()
        await until(lambda: relay.connections >= 3)
        relay.refusing = False
        nodes[0].gang.report_trained()
        for node in nodes:
            await node.hears(Finish())
            assert node.events == [BEGUN, *([Lead()] if node is nodes[0] else []), Train(), Finish()]


@in_loop
async def test_a_member_that_reconnects_hears_what_it_has_missed() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3)) for rank in range(3)]
        relay = await scene.relay(nodes[0].place)
        await asyncio.gather(nodes[0].join(None), nodes[1].join(relay.place), nodes[2].join(nodes[0].place))
        for node in nodes[:2]:
            node.ready()
        await until(lambda: b"serving" in relay.passed)
        relay.swallowing = True
        nodes[2].ready()
        await nodes[0].hears(Train())
        relay.swallowing = False
        relay.cut()
        await nodes[1].hears(Train())
        relay.refusing = True
        relay.cut()
        cause = died("trainer", 2, 3)
        nodes[2].gang.report_failed(cause, time.monotonic() - 1)
        await nodes[0].told_to_stop()
        relay.refusing = False
        await stopped_by(nodes, cause)


@in_loop
async def test_a_first_cause_that_arrives_late_because_of_a_cut_is_still_the_first() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        first = died("pserver", 1, 137)
        nodes[1].gang.report_failed(first, time.monotonic())
        await until(lambda: relay.connections >= 3)
        nodes[0].gang.report_failed(died("trainer", 0, 139), time.monotonic())
        await until(lambda: relay.connections >= 9)
        relay.refusing = False
        await stopped_by(nodes, first)


@in_loop
async def test_a_verdict_waits_until_a_member_has_reconnected_or_is_lost() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        await until(lambda: relay.connections >= 3)
        cause = died("trainer", 0, 139)
        nodes[0].gang.report_failed(cause, time.monotonic())
        await until(lambda: relay.connections >= 9)
        assert not nodes[0].has(Stop)
        relay.refusing = False
        await stopped_by(nodes, cause)


@in_loop
async def test_a_member_that_does_not_return_is_lost() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        cause = await nodes[0].told_to_stop()
        assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 1, "pod-1", Exit.PEER_LOST)
        assert "did not return within 1 s" in cause.what
        cause = await nodes[1].told_to_stop()
        assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 0, "pod-0", Exit.PEER_LOST)
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_a_replacement_cannot_enter_a_gang_that_runs() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        late = await scene.node(1, settings(2), pod="late")
        with pytest.raises(JoinFailed, match="runs without pod late"):
            await late.join(nodes[0].place)
        for node in nodes:
            node.gang.report_trained()
            await node.hears(Train())
        await nodes[1].hears(Finish())


@in_loop
async def test_a_killed_hub_stops_all() -> None:
    async with Scene() as scene:
        hub = scene.process(0, 3, None)
        place = ("127.0.0.1", await hub.line())
        members = [await scene.node(rank, settings(3)) for rank in (1, 2)]
        await asyncio.gather(*(member.join(place) for member in members))
        for member in members:
            member.ready()
            await member.hears(Train()) if member is members[1] else None
        members[1].gang.report_trained()
        hub.send(signal.SIGKILL)
        await hub.code()
        # After the hub, this member's trainer dies of the loss of the hub's pserver.
        members[0].gang.report_failed(died("trainer", 1, 139), time.monotonic())
        cause = await members[0].told_to_stop()
        assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 0, "pod-0", Exit.PEER_LOST)
        await members[0].hears(Finish())
        # This member has trained, so the mark of completion decides.
        await until(lambda: members[1].has(HubLost))
        assert not members[1].has(Stop)


@in_loop
async def test_a_member_that_failed_before_the_hub_was_lost_stops_by_its_own_cause() -> None:
    async with Scene() as scene:
        hub = scene.process(0, 2, None)
        member = await scene.node(1, settings(2))
        await member.join(("127.0.0.1", await hub.line()))
        own = died("trainer", 1, 3)
        member.gang.report_failed(own, time.monotonic() - 0.5)
        hub.send(signal.SIGKILL)
        await stopped_by([member], own)


@in_loop
async def test_without_a_verdict_a_member_stops_by_its_own_cause() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, verdict_within=0.2)
        relay.swallowing = True
        own = died("trainer", 1, 3)
        nodes[1].gang.report_failed(own, time.monotonic())
        await stopped_by([nodes[1]], own)
        assert not nodes[0].has(Stop)


@in_loop
async def test_a_connection_without_heartbeats_is_dead_on_both_sides() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, heartbeat_every=0.05, silence=0.3, reconnect_within=0.2)
        relay.swallowing = True
        for node, other in ((nodes[0], 1), (nodes[1], 0)):
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank) == ("lost", other)
            assert "nothing was heard for 0.3 s" in cause.what


@in_loop
async def test_a_stopped_process_is_lost_by_silence() -> None:
    async with Scene() as scene:
        hub = await scene.node(0, settings(2, heartbeat_every=0.05, silence=0.3))
        member = scene.process(1, 2, hub.place, heartbeat_every=0.05)
        await member.line()
        await hub.join(None)
        hub.ready()
        await hub.hears(Train())
        member.send(signal.SIGSTOP)
        cause = await hub.told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 1)


@in_loop
async def test_members_that_send_heartbeats_are_not_lost() -> None:
    async with Scene() as scene:
        nodes, _ = await cut_gang(scene, heartbeat_every=0.05, silence=0.2)
        deadline = time.monotonic() + 0.6
        await until(lambda: time.monotonic() > deadline)
        assert not any(node.has(Stop) for node in nodes)


@in_loop
async def test_a_process_that_was_stopped_itself_does_not_drop_its_peers_at_once() -> None:
    here, there = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, quiet = await loop.create_connection(lambda: Connection(lambda _, said: None, lambda _: None), sock=here)
    heartbeat = Heartbeat(0.02, 0.1, lambda: [quiet])
    heartbeat.start()
    for _ in range(4):
        time.sleep(0.05)  # noqa: ASYNC251 - this loop does not run, as if it were stopped
    for _ in range(3):
        await asyncio.sleep(0)  # the timer is overdue and runs at once
    assert there.recv(100, socket.MSG_DONTWAIT) == ALIVE
    assert not quiet.closing
    await until(lambda: quiet.closing, "a silent peer is dropped later")
    assert quiet.timed_out
    heartbeat.stop()
    there.close()


@in_loop
async def test_joining_a_hub_that_is_silent_before_the_welcome_fails() -> None:
    async with Scene() as scene:
        config = settings(3, heartbeat_every=0.05, silence=0.2, reach_within=0.2)
        hub, member = await scene.node(0, config), await scene.node(1, config)
        relay = await scene.relay(hub.place)
        leading = asyncio.ensure_future(hub.join(None))
        joining = asyncio.ensure_future(member.join(relay.place))
        await until(member.gang.missing)
        relay.swallowing = True
        relay.refusing = True
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await asyncio.wait_for(joining, 5)
        leading.cancel()


@in_loop
async def test_a_cancelled_join_reports_its_cause_since_the_welcome_may_be_on_its_way() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        said: list[bytes] = []

        async def hub(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(encode(handshake.challenge("nonce")))
            while line := await reader.readline():
                said.append(line)
            writer.close()

        server = await asyncio.start_server(hub, "127.0.0.1", 0)
        joining = asyncio.ensure_future(member.join(server.sockets[0].getsockname()))
        await until(lambda: said, "a hello")
        member.gang.report_failed(replace(died("stopped", 1, 143), rank=None), time.monotonic())
        joining.cancel()
        await until(lambda: any(b'"failed"' in line for line in said), "the cause")
        server.close()


@in_loop
async def test_a_member_that_left_before_its_welcome_arrived_is_not_reported_as_lost() -> None:
    async with Scene() as scene:
        hub, config = await scene.node(0, settings(2)), settings(2)
        joining = asyncio.ensure_future(hub.join(None))
        reader, writer = await asyncio.open_connection(*hub.place)
        hub_nonce = handshake.read_challenge(protocol.decode(await reader.readline()))
        credentials = Credentials(Node(1, config).me, "incarnation", "job", SECRET)
        writer.write(encode(handshake.hello(credentials, Shape(2), None, hub_nonce, "mine")))
        writer.write(encode(messages.failed(0, replace(died("stopped", 1, 143), rank=None), 0.0)))
        writer.write_eof()
        await joining
        await reader.read()
        writer.close()
        cause = await hub.told_to_stop()
        assert (cause.kind, cause.rank) == ("stopped", 1)
        await hub.hears(Finish())


@in_loop
async def test_a_failure_while_a_slow_mark_is_written_does_not_undo_completion() -> None:
    marked = asyncio.Event()
    async with Scene() as scene:
        config = settings(2, verdict_within=0.05, complete_within=8.0)
        hub, member = await scene.training(2, config, complete=lambda: wait_for_event(marked))
        for node in (hub, member):
            node.gang.report_trained()
        await until(lambda: hub.completions, "the mark")
        member.gang.report_failed(died("pserver", 1, 139), time.monotonic())
        await asyncio.sleep(0.2)
        marked.set()
        for node in (hub, member):
            await node.hears(Finish())
            assert not node.has(Stop)


async def wait_for_event(event: asyncio.Event) -> None:
    await event.wait()
