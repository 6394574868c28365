"""Seals: a line that the peer has not sent is noticed, and ends nothing but the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from launcher.gang import Finish, Stop, messages
from launcher.gang.listener import WRONG_PROOF
from launcher.gang.protocol import Message, encode
from launcher.gang.refusals import FORGED
from launcher.gang.seal import Seal, digest
from launcher.model import Cause
from tests.support.members import SECRET, Node, Relay, Scene, died, in_loop, settings, until
from tests.support.wire import SEAL, Wire, join, opened

KEY = b"the key of this connection"
LINES = [b'{"word":"staged"}\n', b'{"word":"serving","turn":0}\n', b'{"word":"alive"}\n', b'{"word":"alive"}\n']


def sealed(*lines: bytes, key: bytes = KEY) -> list[bytes]:
    """Return the lines with their seals, as the receiver reads them."""
    seal = Seal(key)
    return [seal.next(digest(line)) + line[:-1] for line in lines]


def test_lines_are_opened_in_their_order() -> None:
    seal = Seal(KEY)
    assert [seal.open(line) for line in sealed(*LINES)] == [line[:-1] for line in LINES]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[1],  # the first one is missing
        lambda lines: lines[0].replace(b"staged", b"finish"),
        lambda lines: lines[0] + b" ",
        lambda lines: lines[0][SEAL:],
        lambda lines: b"0" * SEAL + lines[0][SEAL:],
        lambda lines: lines[0].upper(),
        lambda lines: lines[0][: SEAL - 1],
        lambda lines: b"",
        lambda lines: sealed(LINES[0], key=b"the key of the other direction")[0],
    ],
)
def test_a_line_that_is_not_the_next_line_of_the_peer_is_not_opened(change: Callable[[list[bytes]], bytes]) -> None:
    assert Seal(KEY).open(change(sealed(*LINES))) is None


def test_a_repeated_line_is_not_opened() -> None:
    seal, lines = Seal(KEY), sealed(*LINES)
    assert seal.open(lines[0]) is not None
    assert seal.open(lines[0]) is None
    seal, lines = Seal(KEY), sealed(*LINES)
    for line in lines[:3]:
        seal.open(line)
    assert seal.open(lines[2]) is None, "the next line has the same words, but another number"


async def training_through_a_relay(scene: Scene) -> tuple[Node, Node, Relay]:
    nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
    relay = await scene.relay(nodes[0].place)
    await scene.joined(nodes, hub=relay.place)
    for node in nodes:
        node.ready()
    for node in nodes:
        await until(lambda node=node: len(node.events) >= 2, "train")  # type: ignore[misc]
    return nodes[0], nodes[1], relay


KILLED: Cause = replace(died("trainer", 1, 1), final=True)
TO_MEMBER = [messages.finish(), messages.stop(KILLED), messages.restart(1, KILLED)]
TO_HUB = [messages.of_attempt("trained", 0), messages.failed(0, KILLED, 0.0), messages.plain("stopped")]


@pytest.mark.parametrize("message", [*TO_MEMBER, *TO_HUB], ids=lambda message: message["word"])
@in_loop
async def test_a_relay_cannot_insert_a_message(message: Message, caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        before = [list(node.events) for node in (hub, member)]
        relay.insert(encode(message), to_target=message in TO_HUB)
        await until(lambda: relay.connections == 2, "the member makes a new connection")
        await until(lambda: member.gang.connected_peers() == hub.gang.connected_peers() == 1, "it is used")
        assert [list(node.events) for node in (hub, member)] == before
        assert not hub.completions
        receiver = hub if message in TO_HUB else member
        assert receiver.gang.refusals.counts == {FORGED: 1}
        assert len([line for line in caplog.messages if FORGED in line]) == 1
        member.trained()
        await asyncio.sleep(0.05)
        assert not hub.completions, "complete, although the hub's own trainer has not finished"
        hub.trained()
        for node in (hub, member):
            await node.hears(Finish())
            assert not node.has(Stop)


@in_loop
async def test_a_relay_cannot_repeat_a_line() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        member.trained()
        await until(lambda: b'"trained"' in relay.passed)
        line = next(line for line in relay.passed.splitlines(True) if b'"trained"' in line)
        assert opened(line) == encode(messages.of_attempt("trained", 0))
        relay.insert(line, to_target=True)
        await until(lambda: relay.connections == 2, "the member makes a new connection")
        await until(lambda: hub.gang.refusals.counts == {FORGED: 1})
        hub.trained()
        await member.hears(Finish())


@in_loop
async def test_a_relay_cannot_repeat_a_line_of_another_connection() -> None:
    """The relay passes the proofs on, and then sends the join that it has recorded on the first connection."""
    async with Scene() as scene:
        hub = await scene.node(0, settings(3))
        leading = asyncio.ensure_future(hub.join(None))
        await asyncio.sleep(0)
        member = await Wire.connect(hub.place)
        await member.prove()
        recorded = member.sealed(encode(join(2, 3)))
        member.writer.write(recorded)
        assert (await member.receive())["word"] == "waiting", "the join is accepted"
        member.close()
        await until(lambda: hub.gang.joined_pods() == ["pod-0"], "the member has left")
        again = await Wire.connect(hub.place)
        await again.prove()
        again.writer.write(recorded)
        await until(lambda: hub.gang.refusals.counts == {WRONG_PROOF: 1}, "the line is refused")
        await again.until_dropped()
        assert hub.gang.joined_pods() == ["pod-0"]
        leading.cancel()


@pytest.mark.parametrize("secret", [SECRET, None])
@in_loop
async def test_a_relay_that_only_forwards_changes_nothing(secret: bytes | None) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await asyncio.gather(nodes[0].join(None, secret=secret), nodes[1].join(relay.place, secret=secret))
        for node in nodes:
            node.ready()
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert node.gang.refusals.counts == {}
        assert relay.connections == 1
