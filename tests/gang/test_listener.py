"""Strangers on the gang port are refused and counted by reason; the gang goes on, whatever they do."""

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


class Stranger:
    """A plain connection to the gang port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, place: Place) -> Stranger:
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

    async def says_hello(self, rank: int = 2, secret: bytes | None = SECRET, job: str = "job", **changes: Any) -> None:
        theirs = handshake.read_challenge(await self.line())
        credentials = Credentials(Node(rank, settings(3)).me, "stranger", job, secret)
        hello = handshake.hello(credentials, Shape(3), None, theirs, handshake.new_nonce())
        self.writer.write(protocol.encode({**hello, **changes}))

    async def is_told(self) -> str:
        """Why it is refused."""
        reason, retry = handshake.read_refusal(await self.line())
        assert not retry
        return reason


async def wrong_secret(place: Place) -> str:
    stranger = await Stranger.connect(place)
    await stranger.says_hello(secret=b"guessed")
    assert "secret" in await stranger.is_told()
    await stranger.until_dropped()
    return "wrong proof"


async def no_secret(place: Place) -> str:
    stranger = await Stranger.connect(place)
    await stranger.says_hello(secret=None)
    assert "secret" in await stranger.is_told()
    await stranger.until_dropped()
    return "wrong proof"


async def changed_hello(place: Place) -> str:
    stranger = await Stranger.connect(place)
    await stranger.says_hello(training="6.6.6.6")
    await stranger.is_told()
    await stranger.until_dropped()
    return "wrong proof"


async def another_job(place: Place) -> str:
    stranger = await Stranger.connect(place)
    await stranger.says_hello(job="other")
    assert "'job'" in await stranger.is_told()
    await stranger.until_dropped()
    return "another job"


async def another_version(place: Place) -> str:
    stranger = await Stranger.connect(place)
    stranger.writer.write(b'{"word":"hello","version":99,"nothing":"else"}\n')
    assert (await stranger.line())["version"] == protocol.VERSION
    assert "version 99" in await stranger.is_told()
    await stranger.until_dropped()
    return "another version"


async def garbage(place: Place) -> str:
    stranger = await Stranger.connect(place)
    stranger.writer.write(b"\x00\xff" * (1 << 19))
    await stranger.until_dropped()
    return "a line too long"


async def long_line_with_an_end(place: Place) -> str:
    stranger = await Stranger.connect(place)
    stranger.writer.write(b'{"word":"hello","job":"' + b"j" * protocol.UNKNOWN_PEER_LIMIT + b'"}\n')
    await stranger.until_dropped()
    return "a line too long"


async def an_http_client(place: Place) -> str:
    stranger = await Stranger.connect(place)
    stranger.writer.write(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
    await stranger.until_dropped()
    return "malformed"


async def another_word_first(place: Place) -> str:
    stranger = await Stranger.connect(place)
    stranger.writer.write(b'{"word":"failed","cause":{},"age":0}\n')
    await stranger.until_dropped()
    return "malformed"


async def half_a_line(place: Place) -> str:
    stranger = await Stranger.connect(place)
    stranger.writer.write(b'{"word":"hel')
    await stranger.until_dropped()
    return "no hello in time"


async def a_slow_line(place: Place) -> str:
    """Every byte is a sign of life, but not of a hello."""
    stranger = await Stranger.connect(place)
    dropped = asyncio.ensure_future(stranger.until_dropped())
    while not dropped.done():
        stranger.writer.write(b" ")
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
async def test_a_stranger_is_refused_and_counted(
    visit: Callable[[Place], Awaitable[str]], caplog: pytest.LogCaptureFixture
) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3, hello_within=0.3)) for rank in range(3)]
        hub = nodes[0]
        early = asyncio.gather(hub.join(None), nodes[1].join(hub.place))
        await until(nodes[1].gang.missing)
        reason = await visit(hub.place)
        assert hub.gang.refused == {reason: 1}
        assert [line for line in caplog.messages if reason in line and "127.0.0.1" in line]
        await asyncio.gather(early, nodes[2].join(hub.place))
        assert await visit(hub.place) == reason
        assert hub.gang.refused == {reason: 2}
        assert len(caplog.messages) == 1, "the second of a kind is told later, as a number"
        await finishes(nodes)
        await hub.gang.close()
        assert any(f"refused 1 more: {reason} (2 in all)" in line for line in caplog.messages)


async def finishes(nodes: list[Node]) -> None:
    for node in nodes:
        node.ready()
    for node in nodes:
        await node.hears(Train())
        node.gang.report_trained()
    for node in nodes:
        await node.hears(Finish())
        assert node.events[-2:] == [Train(), Finish()], "strangers have disturbed the gang"


@pytest.mark.parametrize("secret", [SECRET, None])
@in_loop
async def test_a_replayed_hello_is_refused(secret: bytes | None) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await asyncio.gather(nodes[0].join(None, secret=secret), nodes[1].join(relay.place, secret=secret))
        recorded = next(line for line in relay.passed.splitlines(True) if b'"word":"hello"' in line)
        stranger = await Stranger.connect(nodes[0].place)
        stranger.writer.write(recorded)
        await stranger.line()
        await stranger.is_told()
        await stranger.until_dropped()
        assert nodes[0].gang.refused == {"wrong proof": 1}
        await finishes(nodes)


@in_loop
async def test_idle_strangers_cannot_keep_members_out(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3, hello_within=60)) for rank in range(3)]
        hub = nodes[0]
        early = asyncio.gather(hub.join(None), nodes[1].join(hub.place))
        await until(nodes[1].gang.missing)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
        strangers = [await Stranger.connect(hub.place) for _ in range(500)]
        await until(lambda: sum(hub.gang.refused.values()) == 500 - 64 - 3)
        assert set(hub.gang.refused) == {"too many connections without a hello"}
        assert len(caplog.messages) == 1
        await asyncio.wait_for(nodes[2].join(hub.place), 5)
        await early
        await finishes(nodes)
        for stranger in strangers:
            stranger.writer.close()


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
async def test_a_hub_without_file_descriptors_still_lets_members_in() -> None:
    async with Scene() as scene:
        hub = _hub_with_few_descriptors()
        assert hub.stdout is not None
        try:
            place = ("127.0.0.1", int(hub.stdout.readline()))
            strangers = [await Stranger.connect(place) for _ in range(60)]
            member = await scene.node(1, settings(2))
            await asyncio.wait_for(member.join(place), 8)
            assert await asyncio.wait_for(asyncio.to_thread(hub.stdout.readline), 5) == "True\n"
            for stranger in strangers:
                stranger.writer.close()
        finally:
            hub.kill()
            hub.wait()
            hub.stdout.close()


@pytest.mark.parametrize(("theirs", "mine"), [(b"another", SECRET), (None, SECRET), (SECRET, None)])
@in_loop
async def test_a_member_with_another_secret_is_told_so(theirs: bytes | None, mine: bytes | None) -> None:
    async with Scene() as scene:
        hub, member = [await scene.node(rank, settings(2)) for rank in range(2)]
        leading = asyncio.ensure_future(hub.join(None, secret=theirs))
        await asyncio.sleep(0)
        with pytest.raises(JoinFailed, match="the secret of this member is not the one of the hub"):
            await member.join(hub.place, secret=mine)
        leading.cancel()


async def a_false_hub(scene: Scene, *answers: Callable[[str, str], bytes], version: int = protocol.VERSION) -> Place:
    """Listens, says its challenge, and answers each hello; an answer is made from both nonces."""

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
async def test_a_hub_that_cannot_prove_itself_is_not_believed() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        roster = handshake.Welcomes("gang", _roster())
        for secret in (b"guessed", None):

            def welcome(theirs: str, mine: str, secret: bytes | None = secret) -> bytes:
                return roster.encode(0, 1, secret, theirs, mine) + b'{"word":"train","turn":0}\n'

            place = await a_false_hub(scene, welcome)
            with pytest.raises(JoinFailed, match="could not prove that it has the job's secret"):
                await member.join(place)
        assert member.events == []
        # The same one with the right secret is believed.
        place = await a_false_hub(scene, lambda theirs, mine: roster.encode(0, 1, SECRET, theirs, mine))
        await member.join(place)
        assert member.rank == 1


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b'{"word":"welcome","roster":"x"}\n', b"[" * 100_000 + b"\n"]
)
@in_loop
async def test_whoever_is_no_hub_is_left(answer: bytes) -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2, reach_within=0.2))
        place = await a_false_hub(scene, lambda theirs, mine: answer)
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await member.join(place)


@pytest.mark.parametrize("noise", [b'{"word":"sing"}\n', b'{"word":"stop","cause":{}}\n', b"noise\n"])
@in_loop
async def test_a_hub_that_talks_nonsense_is_lost(noise: bytes) -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2, reconnect_within=0.1))
        roster = handshake.Welcomes("gang", _roster())
        await member.join(
            await a_false_hub(scene, lambda theirs, mine: roster.encode(0, 1, SECRET, theirs, mine) + noise)
        )
        cause = await member.told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 0)


@in_loop
async def test_a_hub_of_another_version_tells_its_member_so() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        reason = "the hub speaks version 2, this member version 1"
        place = await a_false_hub(scene, lambda theirs, mine: protocol.encode(handshake.refusal(reason)), version=2)
        with pytest.raises(JoinFailed, match=reason):
            await member.join(place)


@in_loop
async def test_nobody_returns_to_a_gang_in_anothers_name() -> None:
    async with Scene() as scene:
        nodes = await scene.gang(2)
        for gang in (None, "guessed"):
            stranger = await Stranger.connect(nodes[0].place)
            theirs = handshake.read_challenge(await stranger.line())
            credentials = Credentials(nodes[1].me, "another incarnation", "job", SECRET)
            hello = handshake.hello(credentials, Shape(2), gang, theirs, handshake.new_nonce())
            stranger.writer.write(protocol.encode(hello))
            assert "runs without pod pod-1" in await stranger.is_told()
            await stranger.until_dropped()
        assert nodes[0].gang.refused == {"a latecomer": 2}
        await finishes(nodes)


def _roster() -> Roster:
    return Roster(tuple(Node(rank, settings(2)).me for rank in range(2)))
