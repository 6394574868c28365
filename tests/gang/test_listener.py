"""The listener refuses and counts connections without a valid hello. They do not disturb the gang."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from launcher.gang import Finish, JoinFailed, Train, handshake, protocol
from launcher.gang.dialler import Dialler, Inbox, Refused
from launcher.gang.listener import FAULT, WRONG_PROOF
from tests.support.members import SECRET, Node, Scene, in_loop, settings, until
from tests.support.paths import REPOSITORY
from tests.support.wire import Place, Wire, join


async def wrong_secret(place: Place) -> str:
    wire = await Wire.connect(place)
    await wire.join(2, 3, secret=b"guessed")
    await wire.until_dropped()
    return WRONG_PROOF


async def no_secret(place: Place) -> str:
    wire = await Wire.connect(place)
    await wire.join(2, 3, secret=None)
    await wire.until_dropped()
    return WRONG_PROOF


async def member_of_another_job(place: Place) -> str:
    """A launcher with another secret learns this from the proof, and does not send its join."""
    inbox: Inbox = asyncio.Queue()
    dialler = Dialler(place, None)
    with pytest.raises(Refused, match="the secret of this member differs"):
        await dialler.open(inbox, b"another", 5, 5)
    dialler.abort("refused")
    return WRONG_PROOF


async def another_job(place: Place) -> str:
    wire = await Wire.connect(place)
    await wire.join(2, 3, job="other")
    assert "'job'" in await wire.refusal()
    await wire.until_dropped()
    return "another job"


async def another_version(place: Place) -> str:
    wire = await Wire.connect(place)
    wire.send_line(b'{"word":"hello","version":6,"job":"' + b"j" * 300 + b'","pod":"' + b"p" * 253 + b'"}\n')
    assert "version 6: run the same image" in await wire.refusal()
    await wire.until_dropped()
    return "another version"


async def garbage(place: Place) -> str:
    wire = await Wire.connect(place)
    wire.send_line(b"\x00\xff" * (1 << 19))
    await wire.until_dropped()
    return "a line too long"


async def long_line_with_an_end(place: Place) -> str:
    wire = await Wire.connect(place)
    wire.send_line(b'{"word":"hello","nonce":"' + b"n" * protocol.UNKNOWN_PEER_LIMIT + b'"}\n')
    await wire.until_dropped()
    return "a line too long"


async def long_line_in_place_of_the_join(place: Place) -> str:
    """A peer that has sent a hello only may not fill the memory."""
    wire = await Wire.connect(place)
    wire.send(handshake.hello("a nonce"))
    wire.writer.write(b"j" * (protocol.JOIN_LIMIT + 1))
    await wire.until_dropped()
    return "a line too long"


async def an_http_client(place: Place) -> str:
    wire = await Wire.connect(place)
    wire.send_line(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
    await wire.until_dropped()
    return "malformed"


async def another_word_first(place: Place) -> str:
    wire = await Wire.connect(place)
    wire.send_line(b'{"word":"failed","cause":{},"age":0}\n')
    await wire.until_dropped()
    return "malformed"


async def half_a_line(place: Place) -> str:
    wire = await Wire.connect(place)
    wire.send_line(b'{"word":"hel')
    await wire.until_dropped()
    return "no hello in time"


async def a_slow_line(place: Place) -> str:
    """Each byte shows that the peer is alive, but the bytes are no hello."""
    wire = await Wire.connect(place)
    dropped = asyncio.ensure_future(wire.until_dropped())
    while not dropped.done():
        wire.send_line(b" ")
        await asyncio.sleep(0.02)
    return "no hello in time"


async def a_join_without_a_seal(place: Place) -> str:
    """The hello is that of a member, behind which another program sends the join."""
    wire = await Wire.connect(place)
    await wire.prove()
    wire.writer.write(protocol.encode(join(2, 3)))
    await wire.until_dropped()
    return WRONG_PROOF


async def a_hello_without_a_join(place: Place) -> str:
    wire = await Wire.connect(place)
    await wire.prove()
    await wire.until_dropped()
    return "a hello, but no join in time"


async def a_launcher_of_an_earlier_version(place: Place) -> str:
    """Before version 10, the member waited for the challenge of the hub."""
    wire = await Wire.connect(place)
    challenge = await wire.receive()
    assert (challenge["word"], challenge["version"], challenge["nonce"]) == ("challenge", protocol.VERSION, "")
    wire.send({"word": "hello", "version": 9, "nonce": "a nonce", "answer": "an answer"})
    assert "version 9: run the same image" in await wire.refusal()
    await wire.until_dropped()
    return "another version"


@pytest.mark.parametrize(
    "visit",
    [
        wrong_secret,
        no_secret,
        member_of_another_job,
        another_job,
        another_version,
        garbage,
        long_line_with_an_end,
        long_line_in_place_of_the_join,
        an_http_client,
        another_word_first,
        half_a_line,
        a_slow_line,
        a_join_without_a_seal,
        a_hello_without_a_join,
        a_launcher_of_an_earlier_version,
    ],
)
@in_loop
async def test_a_connection_without_a_valid_hello_is_refused_and_counted(
    visit: Callable[[Place], Awaitable[str]], caplog: pytest.LogCaptureFixture
) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3, hello_within=0.3)) for rank in range(3)]
        hub = nodes[0]
        early = asyncio.gather(hub.join(None), nodes[1].join(hub.place))
        await until(nodes[1].gang.missing)
        reason = await visit(hub.place)
        await until(lambda: hub.gang.refusals.counts == {reason: 1})
        assert [line for line in caplog.messages if reason in line and "127.0.0.1" in line]
        await asyncio.gather(early, nodes[2].join(hub.place))
        assert await visit(hub.place) == reason
        await until(lambda: hub.gang.refusals.counts == {reason: 2})
        assert len(caplog.messages) == 1, "further refusals for the same reason are logged later, as a number"
        await finishes(nodes)
        await hub.gang.close()
        assert any(f"refused 1 more connections: {reason} (2 in all)" in line for line in caplog.messages)


async def finishes(nodes: list[Node]) -> None:
    for node in nodes:
        node.ready()
    for node in nodes:
        await node.hears(Train())
        node.gang.report_trained()
    for node in nodes:
        await node.hears(Finish())
        assert node.events[-2:] == [Train(), Finish()], "the connection has disturbed the gang"


@in_loop
async def test_a_fault_while_a_hello_is_read_refuses_only_this_peer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        leading = asyncio.ensure_future(nodes[0].join(None))
        wire = await Wire.connect(nodes[0].place)
        with monkeypatch.context() as patched:
            patched.setattr(handshake, "read_hello", lambda *_: {"a": "key"}["missing"])
            wire.send(handshake.hello("a nonce"))
            await wire.until_dropped()
        assert nodes[0].gang.refusals.counts == {FAULT: 1}
        assert "KeyError: 'missing'" in caplog.text
        assert not faults, "a fault would end the launcher"
        await asyncio.gather(leading, nodes[1].join(nodes[0].place))
        await finishes(nodes)


@pytest.mark.parametrize("secret", [SECRET, None])
@in_loop
async def test_a_replayed_handshake_is_refused(secret: bytes | None) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await asyncio.gather(nodes[0].join(None, secret=secret), nodes[1].join(relay.place, secret=secret))
        lines = relay.passed.splitlines(True)
        wire = await Wire.connect(nodes[0].place)
        for word in (b'"word":"hello"', b'"word":"join"'):
            wire.send_line(next(line for line in lines if word in line))
        await wire.until_dropped()
        assert nodes[0].gang.refusals.counts == {WRONG_PROOF: 1}
        await finishes(nodes)


@in_loop
async def test_idle_connections_cannot_keep_members_out(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3, hello_within=60)) for rank in range(3)]
        hub = nodes[0]
        early = asyncio.gather(hub.join(None), nodes[1].join(hub.place))
        await until(nodes[1].gang.missing)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
        wires = [await Wire.connect(hub.place) for _ in range(500)]
        await until(lambda: sum(hub.gang.refusals.counts.values()) == 500 - 64 - 3)
        assert set(hub.gang.refusals.counts) == {"too many connections without a join"}
        assert len(caplog.messages) == 1
        await asyncio.wait_for(nodes[2].join(hub.place), 5)
        await early
        await finishes(nodes)
        for wire in wires:
            wire.close()


_FEW_DESCRIPTORS = """
import asyncio, resource, sys
from tests.support.logs import logged
from tests.support.members import Node, Scene, settings, until

async def main():
    async with Scene() as scene:
        hub = await scene.node(0, settings(2, hello_within=60))
        leading = asyncio.ensure_future(hub.join(None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        print(hub.gang.port, flush=True)
        await leading
        print("no file descriptors left" in " ".join(lines), flush=True)

with logged() as lines:
    asyncio.run(main())
"""


def _hub_with_few_descriptors() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _FEW_DESCRIPTORS], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


@in_loop
async def test_a_hub_without_file_descriptors_still_admits_members() -> None:
    async with Scene() as scene:
        hub = _hub_with_few_descriptors()
        assert hub.stdout is not None
        try:
            place = ("127.0.0.1", int(hub.stdout.readline()))
            wires = [await Wire.connect(place) for _ in range(60)]
            member = await scene.node(1, settings(2))
            await asyncio.wait_for(member.join(place), 8)
            assert await asyncio.wait_for(asyncio.to_thread(hub.stdout.readline), 5) == "True\n"
            for wire in wires:
                wire.close()
        finally:
            hub.kill()
            hub.wait()
            hub.stdout.close()


@pytest.mark.parametrize(("hub_secret", "own_secret"), [(b"another", SECRET), (None, SECRET), (SECRET, None)])
@in_loop
async def test_a_member_with_another_secret_gets_the_reason_for_the_refusal(
    hub_secret: bytes | None, own_secret: bytes | None
) -> None:
    async with Scene() as scene:
        hub, member = [await scene.node(rank, settings(2)) for rank in range(2)]
        leading = asyncio.ensure_future(hub.join(None, secret=hub_secret))
        await asyncio.sleep(0)
        with pytest.raises(JoinFailed, match="the secret of this member differs"):
            await member.join(hub.place, secret=own_secret)
        leading.cancel()


@in_loop
async def test_another_launcher_cannot_return_to_a_gang_as_one_of_its_members() -> None:
    async with Scene() as scene:
        nodes = await scene.gang(2)
        for gang in (None, "guessed"):
            wire = await Wire.connect(nodes[0].place)
            await wire.join(1, 2, gang=gang)
            assert "runs without pod pod-1" in await wire.refusal()
            await wire.until_dropped()
        assert nodes[0].gang.refusals.counts == {"a latecomer": 2}
        await finishes(nodes)
