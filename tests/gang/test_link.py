"""A member that hears nothing of its hub dials it a second time, and keeps the first connection until it is welcome."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from launcher.gang import Finish, Stop, Train
from launcher.gang.protocol import ALIVE
from tests.support.members import Node, Relay, Scene, died, in_loop, settings, until

HELLO = b'"word":"hello"'
BEATS = 20


async def gang_of_two(scene: Scene, **changes: Any) -> tuple[Node, Node, Relay]:
    """Both have joined, rank 1 through a relay; the hub has yet to say that they may train."""
    config = settings(2, **{"heartbeat_every": 0.1, "silence": 60, **changes})
    hub, member = await scene.node(0, config), await scene.node(1, config)
    relay = await scene.relay(hub.place)
    await scene.joined([hub, member], hub=relay.place)
    member.ready()
    return hub, member, relay


async def cut_off(relay: Relay) -> None:
    """Its connection is dumb, and the second one is under way, without an answer yet."""
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


def says_it_lives(relay: Relay) -> int:
    return relay.came.count(ALIVE)


async def some_beats(relay: Relay) -> None:
    already = says_it_lives(relay)
    await until(lambda: says_it_lives(relay) > already + BEATS)


@in_loop
async def test_who_is_cut_off_goes_on_on_a_second_connection_and_gives_the_first_one_up() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene, silence=1.0)
        relay.hold()
        hub.ready()
        await member.hears(Train())
        await until(lambda: relay.ended == 2, "both sides have ended the first connection")
        await some_beats(relay)
        assert relay.connections == 2
        await train_to_the_end(hub, member)
        assert hub.gang.refused == {}


@in_loop
async def test_what_was_said_on_a_dumb_connection_is_said_again_on_the_second_one() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        relay.hold()
        cause = died("trainer", 1, 3)
        member.failed(cause)
        assert await hub.told_to_stop() == cause
        assert await member.told_to_stop() == cause


@in_loop
async def test_where_the_first_connection_is_heard_again_it_stays() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene, heartbeat_every=0.2)
        await cut_off(relay)
        first, second = relay.gates
        first.set()
        hub.ready()
        await member.hears(Train())
        second.set()
        await until(lambda: relay.ended, "the second connection is ended")
        await train_to_the_end(hub, member)
        assert relay.passed.count(HELLO) == 1
        assert relay.connections == 2
        assert hub.gang.refused == {}


@in_loop
async def test_from_its_hello_on_the_second_connection_is_waited_for() -> None:
    """The hub may have put it in the place of the first one, whose end is then heard as little as all else."""
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        await cut_off(relay)
        _, second = relay.gates
        relay.last_word = HELLO
        second.set()
        await until(lambda: relay.ended == 1, "the hub has ended the first one")
        await some_beats(relay)
        second.set()
        await train_to_the_end(hub, member)
        assert relay.connections == 2


@in_loop
async def test_a_hub_that_is_only_stopped_gets_one_more_connection_and_goes_on() -> None:
    async with Scene() as scene:
        timing: dict[str, Any] = {"heartbeat_every": 0.05, "silence": 60}
        hub = scene.process(0, 2, None, until="Finish", trained=True, **timing)
        relay = await scene.relay(("127.0.0.1", await hub.line()))
        member = await scene.node(1, settings(2, **timing))
        await member.join(relay.place)
        await some_beats(relay)
        hub.send(signal.SIGSTOP)
        await until(lambda: relay.connections == 2, "a second connection")
        await some_beats(relay)
        assert relay.connections == 2
        hub.send(signal.SIGCONT)
        member.ready()
        await member.hears(Train())
        await some_beats(relay)
        member.trained()
        await member.hears(Finish())
        assert not member.has(Stop)
        assert relay.connections == 2
        said: list[Any] = []
        while not said or "refused" not in said[-1]:
            said.append(await hub.line())
        assert said[-1] == {"refused": {}}
        assert await hub.code() == 0


@pytest.mark.parametrize("who", ["nobody's hub", "the hub of another gang"])
@in_loop
async def test_who_else_answers_is_no_reason_to_give_the_hub_up(who: str) -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        other = await scene.node(0, settings(2))
        if who != "nobody's hub":
            await asyncio.wait_for(asyncio.gather(other.join(None), Node(1, settings(2)).join(other.place)), 8)
        relay.target = other.place
        relay.hold()
        first = relay.gates[0]
        await until(lambda: relay.connections > 3, "it is tried again")
        first.set()
        await train_to_the_end(hub, member)


@pytest.mark.parametrize("answered", [True, False])
@in_loop
async def test_a_connection_that_ends_while_the_second_one_is_dialled_is_returned_from(answered: bool) -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene, reconnect_within=4.0)
        await cut_off(relay)
        _, second = relay.gates
        relay.holding = False
        relay.cut(1)
        if answered:
            second.set()
        await train_to_the_end(hub, member)
        assert relay.connections == (2 if answered else 3)


@in_loop
async def test_without_a_word_on_either_connection_the_hub_is_lost_by_silence() -> None:
    async with Scene() as scene:
        _, member, relay = await gang_of_two(scene, silence=1.0)
        relay.hold(new=True)
        cause = await member.told_to_stop()
        assert (cause.kind, cause.rank, cause.silent) == ("lost", 0, True)
        assert "nothing was heard for 1 s" in cause.what
        relay.gates[1].set()
        await until(lambda: not returning(), "the second connection is given up")
        assert relay.passed.count(HELLO) == 1


@in_loop
async def test_who_closes_while_it_dials_leaves_nothing_behind() -> None:
    async with Scene() as scene:
        _, member, relay = await gang_of_two(scene)
        await cut_off(relay)
        assert returning()
        await asyncio.wait_for(member.gang.close(), 2)
        await until(lambda: not returning(), "nothing is dialled any more")
        await until(lambda: relay.ended, "the second connection is ended")


@in_loop
async def test_who_closes_while_it_dials_still_says_why() -> None:
    async with Scene() as scene:
        hub, member, relay = await gang_of_two(scene)
        await cut_off(relay)
        cause = died("stopped", 1, 143)
        member.failed(cause)
        closing = asyncio.ensure_future(member.gang.close())
        await asyncio.sleep(0)
        relay.gates[1].set()
        assert await hub.told_to_stop() == cause
        await closing


@in_loop
async def test_who_has_left_does_not_dial_again() -> None:
    async with Scene() as scene:
        timing: dict[str, Any] = {"heartbeat_every": 0.05, "silence": 60}
        hub = scene.process(0, 2, None, **timing)
        relay = await scene.relay(("127.0.0.1", await hub.line()))
        member = await scene.node(1, settings(2, **timing))
        await member.join(relay.place)
        member.failed(died("trainer", 1, 3))
        await member.told_to_stop()
        hub.send(signal.SIGSTOP)
        await some_beats(relay)
        assert relay.connections == 1


def returning() -> list[str]:
    names = [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name in ("_open_second", "_reconnect")]
