"""Helpers for tests of the gang: members in this event loop or as processes, and a relay that cuts connections."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, replace
from typing import Any

from launcher.gang import Begin, Event, Gang, GangSettings, Restart, StartRefused, Stop, Train, Verdict
from launcher.model import FIRST, Cause, CauseKind, Member, Roster, Start
from tests.support.paths import REPOSITORY

SECRET = b"a secret of the tests"
BEGUN = Begin(0, FIRST)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a new event loop."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], object], what: str = "", within: float = 8.0) -> None:
    """Wait for a condition. Fail after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
        await asyncio.sleep(0.005)


def settings(size: int, listen: str = "127.0.0.1", **changes: Any) -> GangSettings:
    return replace(GangSettings(size=size, port=0, listen=(listen,)), **changes)


def died(kind: str, rank: int, code: int, what: str = "it died", **more: Any) -> Cause:
    return Cause(CauseKind(kind), rank, f"pod-{rank}", what, code, **more)


class Node:
    """A launcher without processes: its Gang, and the events that the Gang has sent."""

    def __init__(
        self,
        rank: int | None,
        config: GangSettings,
        *,
        pod: str | None = None,
        uid: str = "",
        address: str | None = None,
        complete: Callable[[], Awaitable[None]] | None = None,
        judge: Callable[[Cause], tuple[Cause, Verdict]] = lambda cause: (cause, Verdict.STOP),
        prepare: Callable[[Cause | None], Start | StartRefused] = lambda cause: FIRST,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.host = (config.listen or ("127.0.0.1",))[0]
        name = pod or f"pod-{rank}"
        address = address or f"10.0.0.{rank}"
        self.me = Member(name, uid, address, address, rank)
        self.events: list[Event] = []
        self.completions = 0
        self.judged: list[Cause] = []
        self.roster: Roster | None = None
        self.rank = -1
        self._complete = complete
        self._judge = judge
        self._prepare = prepare
        self._tell = tell
        self.gang = Gang(
            config,
            self._on_event,
            complete=self._on_complete,
            judge=self._on_judge,
            prepare=self._on_prepare,
        )

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self._tell(event)

    async def _on_complete(self) -> None:
        self.completions += 1
        if self._complete:
            await self._complete()

    def _on_judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        self.judged.append(cause)
        return self._judge(cause)

    async def _on_prepare(self, cause: Cause | None) -> Start:
        start = self._prepare(cause)
        if isinstance(start, StartRefused):
            raise start
        return start

    async def join(self, hub: tuple[str, int] | None, *, job: str = "job", secret: bytes | None = SECRET) -> None:
        self.roster, self.rank = await self.gang.join(self.me, hub, job=job, secret=secret)

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.gang.port

    def has(self, kind: type) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    async def hears(self, event: Event, within: float = 8.0) -> None:
        await until(lambda: event in self.events, f"{event} at {self.me.pod}, has {self.events}", within)

    async def told_to_stop(self, within: float = 8.0) -> Cause:
        await until(lambda: self.has(Stop), f"a stop at {self.me.pod}, has {self.events}", within)
        return next(event.cause for event in self.events if isinstance(event, Stop))

    def ready(self) -> None:
        self.gang.report_staged()
        self.serving()

    @property
    def attempt(self) -> int:
        """The current attempt, by the events so far."""
        return max((event.attempt for event in self.events if isinstance(event, Restart)), default=0)

    def serving(self) -> None:
        self.gang.report_serving(self.attempt)

    def trained(self) -> None:
        self.gang.report_trained(self.attempt)

    def ended(self) -> None:
        self.gang.report_ended(self.attempt)

    def failed(self, cause: Cause, died_at: float | None = None) -> None:
        """Report a failure: the death of a process for the current attempt, all other causes for any attempt."""
        attempt = self.attempt if cause.kind.is_child else None
        self.gang.report_failed(cause, time.monotonic() if died_at is None else died_at, attempt)


class Scene:
    """The nodes, processes and relays of one test. All are closed at its end."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.others: list[Any] = []

    async def __aenter__(self) -> Scene:
        return self

    async def __aexit__(self, *_: object) -> None:
        for other in self.others:
            other.close()
        await asyncio.gather(*(node.gang.close() for node in self.nodes))

    async def node(self, rank: int | None, config: GangSettings, **more: Any) -> Node:
        node = Node(rank, config, **more)
        self.nodes.append(node)
        await node.gang.listen()
        return node

    async def relay(self, target: tuple[str, int]) -> Relay:
        relay = Relay(target)
        self.others.append(relay)
        await relay.open()
        return relay

    def process(self, rank: int, size: int, hub: tuple[str, int] | None, **changes: Any) -> NodeProcess:
        process = NodeProcess(rank, size, hub, changes)
        self.others.append(process)
        return process

    async def gang(self, size: int, config: GangSettings | None = None, **hub_more: Any) -> list[Node]:
        """Return the nodes of a complete gang. Rank 0 is the hub."""
        config = config or settings(size)
        nodes = [await self.node(0, config, **hub_more)]
        nodes += [await self.node(rank, config) for rank in range(1, size)]
        await self.joined(nodes)
        return nodes

    async def joined(self, nodes: list[Node], hub: tuple[str, int] | None = None) -> None:
        """Let all nodes join, the first node as the hub. `hub` is the address of the hub that the other nodes use."""
        joins = [nodes[0].join(None), *(node.join(hub or nodes[0].place) for node in nodes[1:])]
        await asyncio.wait_for(asyncio.gather(*joins), 8)

    async def training(self, size: int, config: GangSettings | None = None, **hub_more: Any) -> list[Node]:
        nodes = await self.gang(size, config, **hub_more)
        for node in nodes:
            node.ready()
        for node in nodes:
            await node.hears(Train())
        return nodes


class Relay:
    """A relay between a member and its hub: it ends, refuses or holds back connections, or swallows all that is sent.

    A heartbeat that is late by one interval counts as a stop of the process, and delays the silence. So a test that
    waits for the silence needs intervals above the delays of a busy machine: 0.2 s.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.connections = 0
        self.ended = 0  # how many directions of connections one side has ended
        self.gates: list[asyncio.Event] = []  # one per connection: data waits while the event is not set
        self.holding = False  # whether new connections are held back, too
        self.hold_after: bytes | None = None  # a connection is held back once it has forwarded these bytes
        self.received = self.passed = b""
        self.refusing = False
        self.swallowing = False
        self.place = ("", 0)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.place = self._server.sockets[0].getsockname()[:2]

    def hold(self, *, new: bool = False) -> None:
        """Hold back all connections. If `new`, hold back new connections, too."""
        self.holding = new
        for gate in self.gates:
            gate.clear()

    def cut(self, oldest: int | None = None) -> None:
        """End this many connections, the oldest first, or all connections."""
        ends = None if oldest is None else 2 * oldest
        for writer in self._writers[:ends]:
            writer.transport.abort()
        del self._writers[:ends]

    def insert(self, line: bytes, *, to_target: bool) -> None:
        """Send a line to one side of the newest connection, as if the other side had sent it."""
        accepted, target = self._writers[-2:]
        (target if to_target else accepted).write(line)

    def close(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        if self.refusing:
            writer.transport.abort()
            return
        gate = asyncio.Event()
        self.gates.append(gate)
        if not self.holding:
            gate.set()
        target_reader, target_writer = await asyncio.open_connection(*self.target)
        self._writers.append(target_writer)
        for one, other in ((reader, target_writer), (target_reader, writer)):
            received = asyncio.Queue[bytes]()
            self._tasks.append(asyncio.ensure_future(self._receive(one, received)))
            self._tasks.append(asyncio.ensure_future(self._pass_on(received, other, gate)))

    async def _receive(self, reader: asyncio.StreamReader, received: asyncio.Queue[bytes]) -> None:
        try:
            while data := await reader.read(65536):
                self.received += data
                received.put_nowait(data)
        except OSError:
            pass
        self.ended += 1
        received.put_nowait(b"")

    async def _pass_on(self, received: asyncio.Queue[bytes], writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        while data := await received.get():
            await gate.wait()
            if self.hold_after is not None and self.hold_after in data:
                gate.clear()
            if not self.swallowing:
                self.passed += data
                writer.write(data)
        await gate.wait()
        if not self.swallowing:
            writer.close()


async def stopped_once_by(nodes: list[Node], cause: Cause) -> None:
    """Wait until all nodes have got a Stop with this cause, and check that it is their only Stop."""
    for node in nodes:
        assert await node.told_to_stop() == cause
        assert [event for event in node.events if isinstance(event, Stop)] == [Stop(cause)]


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


class NodeProcess:
    """A node in another process. It joins, reports staged and serving, and if requested, trained."""

    def __init__(self, rank: int, size: int, hub: tuple[str, int] | None, changes: dict[str, Any]) -> None:
        given = json.dumps({"rank": rank, "size": size, "hub": hub, **changes})
        self._child = subprocess.Popen(
            [sys.executable, __file__, given],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )

    async def line(self) -> Any:
        """Return the next line of its output."""
        assert self._child.stdout is not None
        text = await asyncio.wait_for(asyncio.to_thread(self._child.stdout.readline), 10)
        return json.loads(text)

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    async def code(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self._child.wait), 10)

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()


async def _run(given: dict[str, Any]) -> None:
    def tell(event: Event) -> None:
        print(json.dumps({"event": type(event).__name__, **asdict(event)}), flush=True)

    keys = ("silence", "heartbeat_every", "reconnect_within", "reach_within")
    config = settings(given["size"], **{key: given[key] for key in keys if key in given})
    node = Node(given["rank"], config, tell=tell)
    await node.gang.listen()
    print(json.dumps(node.gang.port), flush=True)
    await node.join(tuple(given["hub"]) if given["hub"] else None)
    print(json.dumps({"joined": node.rank}), flush=True)
    node.ready()
    if given.get("trained"):
        node.gang.report_trained()
    if given.get("until"):
        await until(lambda: any(type(event).__name__ == given["until"] for event in node.events))
        print(json.dumps({"refused": dict(node.gang.refusals.counts)}), flush=True)
        node.gang.report_stopped()
        await node.gang.close()
        os._exit(0)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1])))
