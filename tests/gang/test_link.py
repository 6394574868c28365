"""A member that is cut off opens a second connection. A member that reconnects gets the messages that it missed."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from launcher.gang import Finish, HubLost, Restart, Stop, Train
from launcher.gang.protocol import ALIVE
from tests.support.hubs import (
    KILLED,
    SECOND,
    begin_again,
    disconnect,
    fails,
    serve_again,
    times,
    training_through_a_relay,
)
from tests.support.members import BEGUN, Node, Relay, Scene, died, in_loop, settings, until

JOIN = b'"word":"join"'
BEATS = 6


async def gang_of_two(scene: Scene, **changes: Any) -> tuple[Node, Node, Relay]:
    """Return two nodes that have joined, and the relay between them. Training has not started."""
    config = settings(2, **{"heartbeat_every": 0.2, "silence": 60, **changes})
    hub, member = await scene.node(0, config), await scene.node(1, config)
    relay = await scene.relay(hub.place)
    await scene.joined([hub, member], hub=relay.place)
    member.ready()
    return hub, member, relay


async def hold_both(relay: Relay) -> None:
    """Hold back all bytes on the first connection, and on the second connection as soon as it is opened."""
    before = relay.connections
    relay.hold(new=True)
    await until(lambda: relay.connections == before + 1, "a second connection")


async def train_to_the_end(hub: Node, member: Node) -> None:
    hub.ready()
    for node in (hub, member):
        await node.hears(Train())
        node.trained()
    for node in (hub, member):
        await node.hears(Finish())
        assert not node.has(Stop)


def heartbeats(relay: Relay) -> int:
    return relay.received.count(ALIVE)


async def several_heartbeats(relay: Relay) -> None:
    before = heartbeats(relay)
    await until(lambda: heartbeats(relay) > before + BEATS)


@in_loop
async def test_a_member_that_is_cut_off_replaces_its_connection() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene, silence=1.0)
        relay.hold()
        hub.ready()
        await member.hears(Train())
        await until(lambda: relay.ended == 2, "both sides have ended the first connection")
        await several_heartbeats(relay)
        assert relay.connections == 2
        await train_to_the_end(hub, member)
        assert hub.gang.refusals.counts == {}


@in_loop
async def test_messages_sent_on_a_blocked_connection_are_repeated_on_the_second_connection() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        relay.hold()
        cause = died("trainer", 1, 3)
        member.failed(cause)
        assert await hub.told_to_stop() == cause
        assert await member.told_to_stop() == cause


@in_loop
async def test_the_first_connection_stays_if_it_works_again() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene, heartbeat_every=0.2)
        await hold_both(relay)
        first, second = relay.gates
        first.set()
        hub.ready()
        await member.hears(Train())
        second.set()
        await until(lambda: relay.ended, "the second connection is ended")
        await train_to_the_end(hub, member)
        assert relay.passed.count(JOIN) == 1
        assert relay.connections == 2
        assert hub.gang.refusals.counts == {}


@in_loop
async def test_after_its_join_the_member_waits_for_the_second_connection() -> None:
    """The hub may have replaced the first connection, and its end does not arrive because of the cut."""
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        await hold_both(relay)
        _, second = relay.gates
        relay.hold_after = JOIN
        second.set()
        await until(lambda: relay.ended == 1, "the hub has ended the first one")
        await several_heartbeats(relay)
        second.set()
        await train_to_the_end(hub, member)
        assert relay.connections == 2


@in_loop
async def test_a_hub_that_is_only_stopped_gets_one_more_connection_and_continues() -> None:
    async with Scene() as scene:
        timing: dict[str, Any] = {"heartbeat_every": 0.2, "silence": 60}
        hub = scene.process(0, 2, None, until="Finish", trained=True, **timing)
        relay = await scene.relay(("127.0.0.1", await hub.line()))
        member = await scene.node(1, settings(2, **timing))
        await member.join(relay.place)
        await several_heartbeats(relay)
        hub.send(signal.SIGSTOP)
        await until(lambda: relay.connections == 2, "a second connection")
        await several_heartbeats(relay)
        assert relay.connections == 2
        hub.send(signal.SIGCONT)
        member.ready()
        await member.hears(Train())
        await several_heartbeats(relay)
        member.trained()
        await member.hears(Finish())
        assert not member.has(Stop)
        assert relay.connections == 2
        said: list[Any] = []
        while not said or "refused" not in said[-1]:
            said.append(await hub.line())
        assert said[-1] == {"refused": {}}
        assert await hub.code() == 0


@pytest.mark.parametrize("who", ["no hub", "the hub of another gang"])
@in_loop
async def test_an_answer_of_another_launcher_does_not_make_the_hub_lost(who: str) -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        other = await scene.node(0, settings(2))
        if who != "no hub":
            await asyncio.wait_for(asyncio.gather(other.join(None), Node(1, settings(2)).join(other.place)), 8)
        relay.target = other.place
        relay.hold()
        first = relay.gates[0]
        await until(lambda: relay.connections > 3, "further connections")
        first.set()
        await train_to_the_end(hub, member)


@pytest.mark.parametrize("answered", [True, False])
@in_loop
async def test_a_member_reconnects_if_the_first_connection_ends_while_it_opens_the_second(answered: bool) -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene, reconnect_within=4.0)
        await hold_both(relay)
        _, second = relay.gates
        relay.holding = False
        relay.cut(1)
        if answered:
            second.set()
        await train_to_the_end(hub, member)
        assert relay.connections == (2 if answered else 3)


@in_loop
async def test_the_hub_is_lost_by_silence_if_both_connections_are_silent() -> None:
    async with Scene() as scene:
        _, member, relay = await gang_of_two(scene, silence=1.0)
        relay.hold(new=True)
        cause = await member.told_to_stop()
        assert (cause.kind, cause.rank, cause.silent) == ("lost", 0, True)
        assert "nothing was heard for 1 s" in cause.what
        relay.gates[1].set()
        await until(lambda: not returning(), "the second connection is given up")
        assert relay.passed.count(JOIN) == 1


@in_loop
async def test_a_member_that_closes_while_it_opens_a_connection_leaves_nothing_behind() -> None:
    async with Scene() as scene:
        _, member, relay = await gang_of_two(scene)
        await hold_both(relay)
        assert returning()
        await asyncio.wait_for(member.gang.close(), 2)
        await until(lambda: not returning(), "no connection is being opened")
        await until(lambda: relay.ended, "the second connection is ended")


@in_loop
async def test_a_member_that_closes_while_it_opens_a_connection_still_reports_its_cause() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        await hold_both(relay)
        cause = died("stopped", 1, 143)
        member.failed(cause)
        closing = asyncio.ensure_future(member.gang.close())
        await asyncio.sleep(0)
        relay.gates[1].set()
        assert await hub.told_to_stop() == cause
        await closing


@in_loop
async def test_a_member_that_has_left_does_not_connect_again() -> None:
    async with Scene() as scene:
        timing: dict[str, Any] = {"heartbeat_every": 0.2, "silence": 60}
        hub = scene.process(0, 2, None, **timing)
        relay = await scene.relay(("127.0.0.1", await hub.line()))
        member = await scene.node(1, settings(2, **timing))
        await member.join(relay.place)
        member.failed(died("trainer", 1, 3))
        await member.told_to_stop()
        await until(lambda: not returning())  # on a busy machine a heartbeat may have been late
        before = relay.connections
        hub.send(signal.SIGSTOP)
        await several_heartbeats(relay)
        assert relay.connections == before


def returning() -> list[str]:
    names = [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name in ("_open_second", "_reconnect")]


# ---- reconnecting during a restart -----------------------------------------------------------------------------------


@in_loop
async def test_a_member_that_reconnects_gets_the_restart_that_it_missed() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        member.trained()
        await disconnect(relay)
        cause = died("trainer", 0, 3)
        hub.failed(cause, time.monotonic() - 10)  # long before the cut, so the hub does not wait for the member
        await hub.hears(Restart(1, cause))
        assert not member.has(Restart)
        relay.refusing = False
        await member.hears(Restart(1, cause))
        nodes: list[Node] = [hub, member]
        await begin_again(nodes)
        await serve_again(nodes)
        hub.trained()
        await asyncio.sleep(0.03)
        assert not hub.completions, "a repeated message of the attempt before counts in this one"
        member.trained()
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_a_member_that_ended_while_disconnected_reports_this_after_it_reconnects() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        await fails([hub, member])
        await disconnect(relay)
        for node in (hub, member):
            node.ended()
        relay.refusing = False
        for node in (hub, member):
            await node.hears(SECOND)


@in_loop
async def test_a_member_that_reconnects_after_the_begin_gets_each_event_once() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        hub.may_begin.clear()
        await fails([hub, member])
        for node in (hub, member):
            node.ended()
        await until(lambda: len(hub.prepared) == 2, "all have ended")
        await disconnect(relay)
        hub.may_begin.set()
        await hub.hears(SECOND)
        assert SECOND not in member.events
        relay.refusing = False
        await member.hears(SECOND)
        member.serving()
        await until(lambda: relay.passed.count(b'"serving","turn":1') == 1, "the member serves")
        await disconnect(relay)
        hub.serving()
        relay.refusing = False
        for node in (hub, member):
            await until(lambda node=node: times(node, Train) == 2, "the second Train")  # type: ignore[misc]
        assert member.events == [BEGUN, Train(), Restart(1, KILLED), SECOND, Train()]


@in_loop
async def test_trained_before_the_restart_does_not_count_when_the_hub_is_lost() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene, reconnect_within=0.5)
        member.trained()
        await fails([hub, member], died("trainer", 0, 3))
        relay.refusing = True
        relay.cut()
        cause = await member.told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 0)
        assert not member.has(HubLost)
