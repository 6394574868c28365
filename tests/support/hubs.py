"""Helpers for tests of the hub: a hub whose attempts wait for the test, slow and raw members, complete gangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from launcher.gang import (
    Begin,
    Event,
    GangSettings,
    Restart,
    Train,
    Verdict,
)
from launcher.gang.protocol import Message
from launcher.model import FIRST, Cause, Start
from tests.support.members import Node, Relay, Scene, died, settings, until
from tests.support.wire import Wire

KILLED = died("trainer", 1, 137, "killed")
SECOND = Begin(1, Start(4, 2))
THIRD = Begin(2, Start(5, 2))


def restart_after_deaths(cause: Cause) -> tuple[Cause, Verdict]:
    """Restart after each death of a process. A `judge` callback."""
    return cause, Verdict.RESTART if cause.kind.is_child else Verdict.STOP


class HubNode(Node):
    """Rank 0 of a gang that restarts. The first start waits for `may_begin_first`, each later start for `may_begin`."""

    def __init__(
        self, config: GangSettings, judge: Callable[[Cause], tuple[Cause, Verdict]] = restart_after_deaths
    ) -> None:
        super().__init__(0, config, judge=judge)
        self.starts: list[Start | Exception] = [FIRST, SECOND.start, THIRD.start]
        self.prepared: list[Cause | None] = []
        self.prepared_starts: list[Start | Exception] = []
        self.cancelled: list[Start | Exception] = []
        self.ignores_cancel = False  # whether `prepare` returns a start although it was cancelled
        self.may_begin_first, self.may_begin = asyncio.Event(), asyncio.Event()
        self.may_begin_first.set()
        self.may_begin.set()

    async def _on_prepare(self, cause: Cause | None) -> Start:
        start = self.starts[len(self.prepared)]
        self.prepared.append(cause)
        may_begin = self.may_begin if cause else self.may_begin_first
        try:
            await may_begin.wait()
        except asyncio.CancelledError:
            self.cancelled.append(start)
            if not self.ignores_cancel:
                raise
            await may_begin.wait()
        self.prepared_starts.append(start)
        if isinstance(start, Exception):
            raise start
        return start


class SlowNode(Node):
    """A launcher that handles the events of its gang only when the test calls it."""

    def __init__(self, rank: int, config: GangSettings) -> None:
        super().__init__(rank, config)
        self.held: list[Event] | None = None

    def pause(self) -> None:
        self.held = []

    def resume(self) -> None:
        held, self.held = self.held or [], None
        for event in held:
            super()._on_event(event)

    def _on_event(self, event: Event) -> None:
        if self.held is None:
            super()._on_event(event)
        else:
            self.held.append(event)


class RawMember:
    """A member that sends any message, even one that no launcher would send."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size
        self._wire: Wire | None = None

    async def join(self, place: tuple[str, int]) -> None:
        self._wire = await Wire.connect(place)
        await self._wire.join(self._rank, self._size)

    def sends(self, *sent: Message) -> None:
        assert self._wire is not None
        self._wire.send(*sent)

    async def is_lost_by_a_malformed_message(self) -> None:
        """Send a malformed message, so that the hub closes the connection and does not wait for a reconnect."""
        assert self._wire is not None
        self.sends({"word": "nonsense"})
        await self._wire.until_dropped()

    def close(self) -> None:
        assert self._wire is not None
        self._wire.close()


async def add_hub(scene: Scene, config: GangSettings, **more: Any) -> HubNode:
    hub = HubNode(replace(config, reports_within=0.05), **more)
    scene.nodes.append(hub)
    await hub.gang.listen()
    return hub


async def training(scene: Scene, size: int, **changes: Any) -> tuple[HubNode, list[Node]]:
    """Return the hub, and all nodes including the hub, in their first attempt."""
    config = settings(size, **changes)
    hub = await add_hub(scene, config)
    nodes: list[Node] = [hub, *[await scene.node(rank, config) for rank in range(1, size)]]
    await scene.joined(nodes)
    await train(nodes)
    return hub, nodes


async def training_through_a_relay(
    scene: Scene, judge: Callable[[Cause], tuple[Cause, Verdict]] = restart_after_deaths, **changes: Any
) -> tuple[HubNode, Node, Relay]:
    """Return two nodes that train, and the relay between them. A cut does not count as a loss during the test."""
    config = settings(2, **{"reconnect_within": 30, **changes})
    hub, member = await add_hub(scene, config, judge=judge), await scene.node(1, config)
    relay = await scene.relay(hub.place)
    await scene.joined([hub, member], hub=relay.place)
    await train([hub, member])
    return hub, member, relay


async def training_with_a_slow_node(scene: Scene) -> tuple[HubNode, SlowNode]:
    config = settings(2)
    hub, slow = await add_hub(scene, config), SlowNode(1, config)
    scene.nodes.append(slow)
    await slow.gang.listen()
    await scene.joined([hub, slow])
    await train([hub, slow])
    return hub, slow


async def train(nodes: list[Node]) -> None:
    for node in nodes:
        node.ready()
    for node in nodes:
        await node.hears(Train())


async def fails(nodes: list[Node], cause: Cause = KILLED, attempt: int = 1) -> None:
    """Report a failure, and wait until all nodes are told to restart."""
    assert cause.rank is not None
    nodes[cause.rank].failed(cause)
    for node in nodes:
        await node.hears(Restart(attempt, cause))


async def begin_again(nodes: list[Node], begin: Begin = SECOND) -> None:
    for node in nodes:
        node.ended()
    for node in nodes:
        await node.hears(begin)


async def serve_again(nodes: list[Node]) -> None:
    for node in nodes:
        node.serving()
    for node in nodes:
        await until(lambda node=node: times(node, Train) == 2, "the second Train")  # type: ignore[misc]


async def stopped_by(nodes: list[Node], cause: Cause) -> None:
    for node in nodes:
        assert await node.told_to_stop() == cause


def times(node: Node, kind: type) -> int:
    return sum(isinstance(event, kind) for event in node.events)


def hold_timers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[asyncio.TimerHandle]:
    """Collect all timers of exactly this many seconds, so that the test can fire them."""
    loop, timers = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def later(delay: float, *call: Any, **more: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, *call, **more)
        if delay == seconds:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", later)
    return timers


def fire(timers: list[asyncio.TimerHandle]) -> None:
    """Fire the only timer."""
    (timer,) = timers
    if not timer.cancelled():
        timer._run()
        timer.cancel()


def rejoin_after_losses(cause: Cause) -> tuple[Cause, Verdict]:
    """Form a new gang after the loss of a member, restart after all other causes. A `judge` callback."""
    return cause, Verdict.REJOIN if cause.kind.gone else Verdict.RESTART


async def disconnect(relay: Relay) -> None:
    relay.refusing = True
    relay.cut()
    before = relay.connections
    await until(lambda: relay.connections > before, "an attempt to reconnect")
