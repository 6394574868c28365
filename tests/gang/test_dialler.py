"""A member that connects to something else than its hub: a stranger, a relay, another program or another version."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from launcher.gang import JoinFailed, handshake, protocol
from launcher.gang.dialler import Dialler
from launcher.gang.handshake import Nonces
from launcher.model import Roster
from tests.support.members import SECRET, Node, Scene, in_loop, settings, until
from tests.support.wire import Place, Wire, join


async def a_false_hub(scene: Scene, serve: Callable[[Wire], Awaitable[None]]) -> Place:
    """Listen, and serve each connection until the other side ends it."""

    async def serve_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        await serve(wire)
        await wire.until_dropped()

    server = await asyncio.start_server(serve_all, "127.0.0.1", 0)
    scene.others.append(server)
    host, port = server.sockets[0].getsockname()
    return host, port


async def welcome(wire: Wire, *more: bytes) -> None:
    """Accept a member as rank 1 of two."""
    await wire.accept()
    await wire.receive()
    wire.send_line(WELCOME)
    for line in more:
        wire.send_line(line)


@in_loop
async def test_a_hub_without_a_valid_proof_is_refused() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        for secret in (b"guessed", None):
            place = await a_false_hub(scene, lambda wire, secret=secret: wire.accept(secret))  # type: ignore[misc]
            with pytest.raises(JoinFailed, match="the secret of this member differs"):
                await member.join(place)
        assert member.events == []
        await member.join(await a_false_hub(scene, welcome))  # it has the right secret
        assert member.rank == 1


@in_loop
async def test_a_welcome_that_was_inserted_after_the_proof_is_not_accepted() -> None:
    """A relay passes the proofs on, and sends its own welcome in the same packet as the hub's proof."""

    async def insert(wire: Wire) -> None:
        nonces = Nonces("the hub's nonce", (await wire.receive())["nonce"])
        wire.send_line(protocol.encode(handshake.proof(nonces.hub, handshake.prove(SECRET, nonces))) + WELCOME)

    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.2))
        place = await a_false_hub(scene, insert)
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await member.join(place)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b'{"word":"welcome","roster":"x"}\n', b"[" * 100_000 + b"\n"]
)
@in_loop
async def test_joining_a_server_that_is_no_hub_fails(answer: bytes) -> None:
    async def serve(wire: Wire) -> None:
        await wire.receive()
        wire.send_line(answer)

    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.2))
        place = await a_false_hub(scene, serve)
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await member.join(place)


ENDLESS = [
    protocol.encode({"word": "again", "reason": "x" * 12_000_000, "retry": False}),
    protocol.encode({"word": "waiting", "joined": 1, "size": 2, "ranks": list(range(2_000_000))}),
    protocol.encode({"word": "again", "reason": "line\nbreak\x1b[2J", "retry": False}),
]


@pytest.mark.parametrize("answer", ENDLESS, ids=["a reason", "ranks", "control characters"])
@in_loop
async def test_a_hub_without_proof_cannot_fill_the_logs_of_members(answer: bytes) -> None:
    async def serve(wire: Wire) -> None:
        await wire.receive()
        wire.send_line(answer)

    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.2))
        place = await a_false_hub(scene, serve)
        with pytest.raises(JoinFailed) as failed:
            await member.join(place)
        assert len(failed.value.reason) < protocol.UNKNOWN_PEER_LIMIT
        assert failed.value.reason.isprintable()
        assert member.gang.missing() is None


@in_loop
async def test_neither_side_says_what_job_it_belongs_to_before_the_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []

    async def listen(wire: Wire) -> None:
        await wire.accept(b"guessed")
        await wire.until_dropped()
        said.append(wire.received)

    async def resolve(dialler: Dialler) -> list[tuple[int, Place]]:
        return [(socket.AF_INET, place)]

    async with Scene() as scene:
        hub, member = [await scene.node(rank, settings(2, reach_within=0.2)) for rank in range(2)]
        leading = asyncio.ensure_future(hub.join(None, job="the job"))
        await asyncio.sleep(0)
        place = await a_false_hub(scene, listen)
        monkeypatch.setattr(Dialler, "_resolve", resolve)
        with pytest.raises(JoinFailed):
            await member.join(("the job-0.the job.svc", place[1]), job="the job")
        wire = await Wire.connect(hub.place)
        await wire.prove(b"guessed")
        wire.send(join(1, 2, job="another"))
        await wire.until_dropped()
        await until(lambda: said)
        for received in (*said, wire.received):
            assert b'"word":' in received
            assert not [word for word in (b"the job", b"pod-", b"10.0.0.") if word in received]
        leading.cancel()


@in_loop
async def test_a_hub_that_ends_right_after_its_proof_is_not_taken_for_another_program() -> None:
    async def end(wire: Wire) -> None:
        await wire.accept()
        wire.close()

    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.2))
        place = await a_false_hub(scene, end)
        with pytest.raises(JoinFailed, match="the other side ended the connection"):
            await member.join(place)


@pytest.mark.parametrize("noise", [b'{"word":"sing"}\n', b'{"word":"stop","cause":{}}\n', b"noise\n"])
@in_loop
async def test_a_hub_that_sends_a_malformed_message_is_lost(noise: bytes) -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2, reconnect_within=0.1))
        await member.join(await a_false_hub(scene, lambda wire: welcome(wire, noise)))
        cause = await member.told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 0)


@in_loop
async def test_a_refusal_by_a_hub_of_another_version_is_reported_with_its_reason() -> None:
    reason = "the hub speaks version 2, this member version 1"

    async def refuse(wire: Wire) -> None:
        wire.send({"word": "challenge", "version": 2, "nonce": "a nonce"})
        await wire.receive()
        wire.send(handshake.refusal(reason))

    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        place = await a_false_hub(scene, refuse)
        with pytest.raises(JoinFailed, match=reason):
            await member.join(place)


@pytest.mark.parametrize(
    ("dialled", "compared"), [("127.0.0.1", False), ("192.0.2.1", True), ("10.0.0.0", False), ("fd00::1", False)]
)
def test_an_answer_from_another_address_than_the_hubs_is_reported(
    dialled: str, compared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    dialler = Dialler(("hub", 7000), None)
    dialler._dialled = (2, (dialled, 7000))
    dialler.welcomed("10.0.0.0")
    dialler.welcomed("10.0.0.0")
    assert caplog.messages == (
        ["the hub's address is 10.0.0.0, but hub:7000 answers: is there a proxy between them?"] if compared else []
    )


def _roster() -> Roster:
    return Roster(tuple(Node(rank, settings(2)).me for rank in range(2)))


WELCOME = b"".join(handshake.Welcomes("gang", _roster()).encode(0, 1)[0])
