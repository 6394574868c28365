"""The listener refuses and counts connections without a valid hello. They do not disturb the gang."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from launcher.gang import Finish, JoinFailed, Train, handshake, protocol
from launcher.gang.events import Credentials
from launcher.model import Roster, Shape
from tests.support.members import SECRET, Node, Scene, in_loop, settings, until
from tests.support.paths import REPOSITORY

Place = tuple[str, int]


class RawConnection:
    """A TCP connection to the gang port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, place: Place) -> RawConnection:
        return cls(*await asyncio.open_connection(*place))

    async def line(self) -> dict[str, Any]:
        text = await asyncio.wait_for(self._reader.readline(), 5)
        return dict(json.loads(text))

    async def until_dropped(self) -> None:
        try:
            while await asyncio.wait_for(self._reader.read(65536), 8):
                pass
        except OSError:
            pass
        self.writer.close()

    async def send_hello(self, rank: int = 2, secret: bytes | None = SECRET, job: str = "job", **changes: Any) -> None:
        hub_nonce = handshake.read_challenge(await self.line())
        credentials = Credentials(Node(rank, settings(3)).me, "stranger", job, secret)
        hello = handshake.hello(credentials, Shape(3), None, hub_nonce, handshake.new_nonce())
        self.writer.write(protocol.encode({**hello, **changes}))

    async def refusal(self) -> str:
        """Return the reason of the refusal."""
        reason, retry = handshake.read_refusal(await self.line())
        assert not retry
        return reason


async def wrong_secret(place: Place) -> str:
    raw = await RawConnection.connect(place)
    await raw.send_hello(secret=b"guessed")
    assert "secret" in await raw.refusal()
    await raw.until_dropped()
    return "wrong proof"


async def no_secret(place: Place) -> str:
    raw = await RawConnection.connect(place)
    await raw.send_hello(secret=None)
    assert "secret" in await raw.refusal()
    await raw.until_dropped()
    return "wrong proof"


async def changed_hello(place: Place) -> str:
    raw = await RawConnection.connect(place)
    await raw.send_hello(training="6.6.6.6")
    await raw.refusal()
    await raw.until_dropped()
    return "wrong proof"


async def another_job(place: Place) -> str:
    raw = await RawConnection.connect(place)
    await raw.send_hello(job="other")
    assert "'job'" in await raw.refusal()
    await raw.until_dropped()
    return "another job"


async def another_version(place: Place) -> str:
    raw = await RawConnection.connect(place)
    raw.writer.write(b'{"word":"hello","version":99,"nothing":"else"}\n')
    assert (await raw.line())["version"] == protocol.VERSION
    assert "version 99" in await raw.refusal()
    await raw.until_dropped()
    return "another version"


async def garbage(place: Place) -> str:
    raw = await RawConnection.connect(place)
    raw.writer.write(b"\x00\xff" * (1 << 19))
    await raw.until_dropped()
    return "a line too long"


async def long_line_with_an_end(place: Place) -> str:
    raw = await RawConnection.connect(place)
    raw.writer.write(b'{"word":"hello","job":"' + b"j" * protocol.UNKNOWN_PEER_LIMIT + b'"}\n')
    await raw.until_dropped()
    return "a line too long"


async def an_http_client(place: Place) -> str:
    raw = await RawConnection.connect(place)
    raw.writer.write(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
    await raw.until_dropped()
    return "malformed"


async def another_word_first(place: Place) -> str:
    raw = await RawConnection.connect(place)
    raw.writer.write(b'{"word":"failed","cause":{},"age":0}\n')
    await raw.until_dropped()
    return "malformed"


async def half_a_line(place: Place) -> str:
    raw = await RawConnection.connect(place)
    raw.writer.write(b'{"word":"hel')
    await raw.until_dropped()
    return "no hello in time"


async def a_slow_line(place: Place) -> str:
    """Each byte shows that the peer is alive, but the bytes are no hello."""
    raw = await RawConnection.connect(place)
    dropped = asyncio.ensure_future(raw.until_dropped())
    while not dropped.done():
        raw.writer.write(b" ")
        await asyncio.sleep(0.02)
    return "no hello in time"


@pytest.mark.parametrize(
    "visit",
    [
        wrong_secret,
        no_secret,
        changed_hello,
        another_job,
        another_version,
        garbage,
        long_line_with_an_end,
        an_http_client,
        another_word_first,
        half_a_line,
        a_slow_line,
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
        assert hub.gang.refusals.counts == {reason: 1}
        assert [line for line in caplog.messages if reason in line and "127.0.0.1" in line]
        await asyncio.gather(early, nodes[2].join(hub.place))
        assert await visit(hub.place) == reason
        assert hub.gang.refusals.counts == {reason: 2}
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


@pytest.mark.parametrize("secret", [SECRET, None])
@in_loop
async def test_a_replayed_hello_is_refused(secret: bytes | None) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await asyncio.gather(nodes[0].join(None, secret=secret), nodes[1].join(relay.place, secret=secret))
        recorded = next(line for line in relay.passed.splitlines(True) if b'"word":"hello"' in line)
        raw = await RawConnection.connect(nodes[0].place)
        raw.writer.write(recorded)
        await raw.line()
        await raw.refusal()
        await raw.until_dropped()
        assert nodes[0].gang.refusals.counts == {"wrong proof": 1}
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
        raws = [await RawConnection.connect(hub.place) for _ in range(500)]
        await until(lambda: sum(hub.gang.refusals.counts.values()) == 500 - 64 - 3)
        assert set(hub.gang.refusals.counts) == {"too many connections without a hello"}
        assert len(caplog.messages) == 1
        await asyncio.wait_for(nodes[2].join(hub.place), 5)
        await early
        await finishes(nodes)
        for raw in raws:
            raw.writer.close()


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
            raws = [await RawConnection.connect(place) for _ in range(60)]
            member = await scene.node(1, settings(2))
            await asyncio.wait_for(member.join(place), 8)
            assert await asyncio.wait_for(asyncio.to_thread(hub.stdout.readline), 5) == "True\n"
            for raw in raws:
                raw.writer.close()
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


async def a_false_hub(scene: Scene, *answers: Callable[[str, str], bytes], version: int = protocol.VERSION) -> Place:
    """Listen, send a challenge, and send the answers to each hello. An answer is made from both nonces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(protocol.encode({**handshake.challenge("hub's nonce"), "version": version}))
        hello = json.loads(await reader.readline())
        for answer in answers:
            writer.write(answer("hub's nonce", hello["nonce"]))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    scene.others.append(server)
    host, port = server.sockets[0].getsockname()
    return host, port


@in_loop
async def test_a_hub_without_a_valid_proof_is_refused() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        roster = handshake.Welcomes("gang", _roster())
        for secret in (b"guessed", None):

            def welcome(hub_nonce: str, member_nonce: str, secret: bytes | None = secret) -> bytes:
                return roster.encode(0, 1, secret, hub_nonce, member_nonce) + b'{"word":"train","turn":0}\n'

            place = await a_false_hub(scene, welcome)
            with pytest.raises(JoinFailed, match="could not prove that it has the job's secret"):
                await member.join(place)
        assert member.events == []
        # With the right secret it is accepted.
        place = await a_false_hub(
            scene, lambda hub_nonce, member_nonce: roster.encode(0, 1, SECRET, hub_nonce, member_nonce)
        )
        await member.join(place)
        assert member.rank == 1


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b'{"word":"welcome","roster":"x"}\n', b"[" * 100_000 + b"\n"]
)
@in_loop
async def test_joining_a_server_that_is_no_hub_fails(answer: bytes) -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.2))
        place = await a_false_hub(scene, lambda hub_nonce, member_nonce: answer)
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await member.join(place)


@pytest.mark.parametrize("noise", [b'{"word":"sing"}\n', b'{"word":"stop","cause":{}}\n', b"noise\n"])
@in_loop
async def test_a_hub_that_sends_a_malformed_message_is_lost(noise: bytes) -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2, reconnect_within=0.1))
        roster = handshake.Welcomes("gang", _roster())
        await member.join(
            await a_false_hub(
                scene, lambda hub_nonce, member_nonce: roster.encode(0, 1, SECRET, hub_nonce, member_nonce) + noise
            )
        )
        cause = await member.told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 0)


@in_loop
async def test_a_refusal_by_a_hub_of_another_version_is_reported_with_its_reason() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        reason = "the hub speaks version 2, this member version 1"
        place = await a_false_hub(
            scene, lambda hub_nonce, member_nonce: protocol.encode(handshake.refusal(reason)), version=2
        )
        with pytest.raises(JoinFailed, match=reason):
            await member.join(place)


@in_loop
async def test_another_launcher_cannot_return_to_a_gang_as_one_of_its_members() -> None:
    async with Scene() as scene:
        nodes = await scene.gang(2)
        for gang in (None, "guessed"):
            raw = await RawConnection.connect(nodes[0].place)
            hub_nonce = handshake.read_challenge(await raw.line())
            credentials = Credentials(nodes[1].me, "another incarnation", "job", SECRET)
            hello = handshake.hello(credentials, Shape(2), gang, hub_nonce, handshake.new_nonce())
            raw.writer.write(protocol.encode(hello))
            assert "runs without pod pod-1" in await raw.refusal()
            await raw.until_dropped()
        assert nodes[0].gang.refusals.counts == {"a latecomer": 2}
        await finishes(nodes)


def _roster() -> Roster:
    return Roster(tuple(Node(rank, settings(2)).me for rank in range(2)))
