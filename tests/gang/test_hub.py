"""After a failure of a process the hub restarts all members together, once no process of the attempt before is left.

After the loss of a member the hub stops the gang instead, and tells the other members whether to form a new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from launcher.errors import Exit
from launcher.gang import (
    AlreadyComplete,
    Begin,
    Event,
    Finish,
    GangSettings,
    HubLost,
    Lead,
    Restart,
    StartRefused,
    Stop,
    Train,
    Verdict,
    handshake,
    messages,
    protocol,
)
from launcher.gang.events import Credentials
from launcher.gang.protocol import Message, encode
from launcher.model import CHILDREN, FIRST, Cause, Shape, Start
from tests.support.members import BEGUN, SECRET, Node, Relay, Scene, died, in_loop, settings, until

KILLED = died("trainer", 1, 137, "killed")
SECOND = Begin(1, Start(4, 2))
THIRD = Begin(2, Start(5, 2))


def restart_after_deaths(cause: Cause) -> tuple[Cause, Verdict]:
    """Judge: restart after every death of a process."""
    return cause, Verdict.RESTART if cause.kind in CHILDREN else Verdict.STOP


class HubNode(Node):
    """Rank 0 of a gang that restarts. The first start waits for `may_begin_first`, each later one for `may_begin`."""

    def __init__(
        self, config: GangSettings, judge: Callable[[Cause], tuple[Cause, Verdict]] = restart_after_deaths
    ) -> None:
        super().__init__(0, config, judge=judge)
        self.starts: list[Start | Exception] = [FIRST, SECOND.start, THIRD.start]
        self.prepared: list[Cause | None] = []
        self.prepared_starts: list[Start | Exception] = []
        self.cancelled: list[Start | Exception] = []
        self.ignores_cancel = False  # `prepare` returns a start though it was cancelled
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
    """A launcher that handles the events of its gang only when the test says so."""

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
    """A member that sends what the test wants, also what no launcher would send."""

    def __init__(self, rank: int, size: int) -> None:
        self.me = Node(rank, settings(size)).me
        self.size = size
        self._writer: asyncio.StreamWriter | None = None

    async def join(self, place: tuple[str, int]) -> None:
        self._reader, self._writer = await asyncio.open_connection(*place)
        hub_nonce = handshake.read_challenge(protocol.decode(await self._reader.readline()))
        self.sends(
            handshake.hello(Credentials(self.me, "raw", "job", SECRET), Shape(self.size), None, hub_nonce, "mine")
        )

    def sends(self, *sent: Message) -> None:
        assert self._writer is not None
        for message in sent:
            self._writer.write(encode(message))

    async def is_lost_by_a_malformed_message(self) -> None:
        """Make the hub end the connection. It does not wait for a reconnect then."""
        self.sends({"word": "nonsense"})
        while await self._reader.read(65536):
            pass

    def close(self) -> None:
        assert self._writer is not None
        self._writer.close()


async def add_hub(scene: Scene, config: GangSettings, **more: Any) -> HubNode:
    hub = HubNode(replace(config, reports_within=0.05), **more)
    scene.nodes.append(hub)
    await hub.gang.listen()
    return hub


async def training(scene: Scene, size: int, **changes: Any) -> tuple[HubNode, list[Node]]:
    """Return the hub, and all nodes including it, in their first attempt."""
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
    """Collect the timers of exactly so many seconds, so that the test can fire them."""
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


# ---- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1])
@in_loop
async def test_the_next_attempt_begins_once_all_have_ended_and_it_is_prepared(culprit: int) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 3)
        hub.may_begin.clear()
        cause = died("pserver", culprit, 137)
        await fails(nodes, cause)
        for node in nodes[:2]:
            node.ended()
        await asyncio.sleep(0.03)
        assert hub.prepared == [None], "prepared though a member has not ended"
        nodes[2].ended()
        await until(lambda: hub.prepared == [None, cause], "the next attempt is prepared with the cause")
        await asyncio.sleep(0.03)
        assert [times(node, Begin) for node in nodes] == [1, 1, 1], "begun before it was prepared"
        hub.may_begin.set()
        for node in nodes:
            await node.hears(SECOND)
            assert not node.has(Stop)


@in_loop
async def test_a_second_attempt_trains_to_the_end_and_completes_once() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 3)
        nodes[2].trained()
        await fails(nodes)
        await begin_again(nodes)
        await serve_again(nodes)
        for node in nodes[:2]:
            node.trained()
        await asyncio.sleep(0.03)
        assert not any(node.has(Finish) for node in nodes), "what was trained before the restart does not count"
        nodes[2].trained()
        for node in nodes:
            await node.hears(Finish())
            attempt = [*([Lead()] if node is hub else []), Train()]
            assert node.events == [BEGUN, *attempt, Restart(1, KILLED), SECOND, *attempt, Finish()]
        assert hub.completions == 1
        assert hub.judged == [KILLED]


@in_loop
async def test_a_gang_of_one_restarts() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 1)
        cause = died("trainer", 0, 3)
        await fails(nodes, cause)
        await begin_again(nodes)
        await serve_again(nodes)
        hub.trained()
        await hub.hears(Finish())
        assert hub.prepared == [None, cause]


@in_loop
async def test_an_attempt_that_fails_again_is_followed_by_a_third() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2)
        await fails(nodes)
        await begin_again(nodes)
        await serve_again(nodes)
        other = died("pserver", 0, 139)
        await fails(nodes, other, attempt=2)
        await begin_again(nodes, THIRD)
        assert hub.prepared == [None, KILLED, other]
        assert not any(node.has(Stop) for node in nodes)


@in_loop
async def test_the_same_failure_in_the_next_attempt_counts_again() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2)
        await fails(nodes)
        await begin_again(nodes)
        await fails(nodes, attempt=2)
        assert hub.judged == [KILLED, KILLED]


@in_loop
async def test_staged_counts_for_all_attempts() -> None:
    """One member is still copying when a server of another one dies."""
    async with Scene() as scene:
        config = settings(2)
        hub, member = await add_hub(scene, config), await scene.node(1, config)
        nodes: list[Node] = [hub, member]
        await scene.joined(nodes)
        hub.ready()
        await fails(nodes, died("pserver", 1, 134))
        await begin_again(nodes)
        for node in nodes:
            node.serving()
        await asyncio.sleep(0.03)
        assert not any(node.has(Train) or node.has(Lead) for node in nodes), "trains though not everything is copied"
        member.gang.report_staged()
        for node in nodes:
            await node.hears(Train())
        assert hub.has(Lead)


@in_loop
async def test_all_members_are_told_the_cause_that_the_judge_returns() -> None:
    async with Scene() as scene:
        judged = replace(KILLED, what="killed, in the words of the judge")
        config = settings(2)
        hub = await add_hub(scene, config, judge=lambda cause: (judged, Verdict.RESTART))
        nodes = [hub, await scene.node(1, config)]
        await scene.joined(nodes)
        nodes[1].failed(KILLED)
        for node in nodes:
            await node.hears(Restart(1, judged))
            node.ended()
        await hub.hears(SECOND)
        assert hub.prepared == [None, judged]


@in_loop
async def test_a_death_that_followed_the_first_cause_does_not_fail_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2, verdict_within=91.0)
        timers = hold_timers(monkeypatch, 91.0)
        cause, now = died("pserver", 0, 137), time.monotonic()
        nodes[1].failed(died("trainer", 1, 139), now)
        nodes[0].failed(cause, now - 1)
        for node in nodes:
            await node.hears(Restart(1, cause))
        await begin_again(nodes)
        assert [timer.cancelled() for timer in timers] == [True], "it would stop by itself, since no verdict has come"
        await serve_again(nodes)
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop)
        assert hub.judged == [cause]


@in_loop
async def test_a_verdict_of_stop_ends_the_gang_in_any_attempt() -> None:
    async with Scene() as scene:
        config = settings(2)
        hub = await add_hub(
            scene, config, judge=lambda cause: restart_after_deaths(cause) if cause == KILLED else (cause, Verdict.STOP)
        )
        nodes = [hub, await scene.node(1, config)]
        await scene.joined(nodes)
        await fails(nodes)
        await begin_again(nodes)
        cause = died("trainer", 1, 78)
        nodes[1].failed(cause)
        await stopped_by(nodes, cause)
        assert [times(node, Restart) for node in nodes] == [1, 1]


# ---- messages of another attempt -------------------------------------------------------------------------------------


async def second_attempt_with_a_raw_member(scene: Scene) -> tuple[HubNode, RawMember]:
    """Return them when the second attempt has begun and no member serves yet."""
    hub, raw = await add_hub(scene, settings(2)), RawMember(1, 2)
    joining = asyncio.ensure_future(hub.join(None))
    await raw.join(hub.place)
    scene.others.append(raw)
    await joining
    raw.sends(messages.plain("staged"), messages.of_attempt("serving", 0))
    await train([hub])
    raw.sends(messages.failed(0, KILLED, 0.0))
    await hub.hears(Restart(1, KILLED))
    hub.ended()
    raw.sends(messages.of_attempt("ended", 1))
    await hub.hears(SECOND)
    return hub, raw


def fails_in_attempt(number: int) -> Message:
    return messages.failed(number, died("trainer", 1, 3), 0.0)


@pytest.mark.parametrize("attempt", [0, 2])
@in_loop
async def test_serving_in_another_attempt_does_not_start_training(attempt: int) -> None:
    async with Scene() as scene:
        hub, raw = await second_attempt_with_a_raw_member(scene)
        hub.serving()
        raw.sends(messages.of_attempt("serving", attempt), fails_in_attempt(1))
        await hub.hears(Restart(2, died("trainer", 1, 3)))
        assert times(hub, Train) == 1


@pytest.mark.parametrize("attempt", [0, 2])
@in_loop
async def test_trained_in_another_attempt_does_not_complete_the_job(attempt: int) -> None:
    async with Scene() as scene:
        hub, raw = await second_attempt_with_a_raw_member(scene)
        hub.serving()
        hub.trained()
        raw.sends(messages.of_attempt("serving", 1), messages.of_attempt("trained", attempt), fails_in_attempt(1))
        await hub.hears(Restart(2, died("trainer", 1, 3)))
        assert hub.completions == 0


@pytest.mark.parametrize("attempt", [0, 2])
@in_loop
async def test_a_failure_of_another_attempt_is_ignored(attempt: int) -> None:
    async with Scene() as scene:
        hub, raw = await second_attempt_with_a_raw_member(scene)
        hub.trained()
        raw.sends(fails_in_attempt(attempt), messages.of_attempt("trained", 1))
        await hub.hears(Finish())
        assert hub.judged == [KILLED]


@in_loop
async def test_ended_for_another_restart_does_not_count() -> None:
    async with Scene() as scene:
        hub, raw = await second_attempt_with_a_raw_member(scene)
        raw.sends(fails_in_attempt(1))
        await hub.hears(Restart(2, died("trainer", 1, 3)))
        hub.ended()
        stop = died("stopped", 1, 143)
        raw.sends(messages.of_attempt("ended", 1), messages.failed(2, stop, 0.0))
        assert await hub.told_to_stop() == stop
        assert hub.prepared == [None, KILLED]


async def pauses_during_a_restart(hub: HubNode, slow: SlowNode) -> None:
    """Its gang has received the restart, but the launcher has not handled it."""
    slow.pause()
    cause = died("pserver", 0, 137)
    hub.failed(cause)
    await until(lambda: Restart(slow.attempt + 1, cause) in (slow.held or []), "the restart, not yet handled")


@in_loop
async def test_a_death_reported_before_the_restart_is_handled_does_not_fail_the_next_attempt() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_node(scene)
        await pauses_during_a_restart(hub, slow)
        slow.failed(died("trainer", 1, 139))
        slow.resume()
        await begin_again([hub, slow])
        await serve_again([hub, slow])
        assert hub.judged == [died("pserver", 0, 137)]


@in_loop
async def test_trained_reported_before_the_restart_is_handled_does_not_count() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_node(scene)
        await pauses_during_a_restart(hub, slow)
        slow.trained()
        slow.resume()
        await begin_again([hub, slow])
        await serve_again([hub, slow])
        hub.trained()
        await fails([hub, slow], attempt=2)
        assert not hub.completions


@in_loop
async def test_serving_reported_before_the_restart_is_handled_does_not_count() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_node(scene)
        await pauses_during_a_restart(hub, slow)
        slow.serving()
        slow.resume()
        await begin_again([hub, slow])
        hub.serving()
        await fails([hub, slow], attempt=2)
        assert times(hub, Train) == 1


@in_loop
async def test_ended_reported_before_a_further_restart_is_handled_does_not_count() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_node(scene)
        await fails([hub, slow])
        await begin_again([hub, slow])
        await pauses_during_a_restart(hub, slow)
        slow.ended()
        hub.ended()
        stop = died("stopped", 1, 143)
        slow.failed(stop)
        assert await hub.told_to_stop() == stop
        assert hub.prepared == [None, KILLED]


@in_loop
async def test_a_stop_reported_before_the_restart_is_handled_ends_the_gang() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_node(scene)
        await pauses_during_a_restart(hub, slow)
        stop = died("stopped", 1, 143)
        slow.failed(stop)
        slow.resume()
        await stopped_by([hub, slow], stop)


# ---- cuts ------------------------------------------------------------------------------------------------------------


async def disconnect(relay: Relay) -> None:
    relay.refusing = True
    relay.cut()
    before = relay.connections
    await until(lambda: relay.connections > before, "an attempt to reconnect")


@in_loop
async def test_a_member_that_reconnects_hears_of_the_restart_that_it_missed() -> None:
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
async def test_a_member_that_ended_while_it_was_disconnected_says_so_when_it_reconnects() -> None:
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


# ---- what ends a restart ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("when", ["ending", "preparing"])
@in_loop
async def test_a_stop_during_a_restart_ends_the_gang(rank: int, when: str) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2)
        hub.may_begin.clear()
        await fails(nodes)
        if when == "preparing":
            for node in nodes:
                node.ended()
            await until(lambda: len(hub.prepared) == 2, "all have ended")
        cause = died("stopped", rank, 143)
        nodes[rank].failed(cause)
        await stopped_by(nodes, cause)
        hub.may_begin.set()
        for node in nodes:
            node.ended()
        nodes[rank].gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())
            assert SECOND not in node.events
        assert len(hub.prepared) == (2 if when == "preparing" else 1)


@in_loop
async def test_a_stop_that_came_with_the_failure_still_ends_the_gang() -> None:
    async with Scene() as scene:
        _, nodes = await training(scene, 2)
        first, stop, now = died("trainer", 0, 3), died("stopped", 1, 143), time.monotonic()
        nodes[1].failed(stop, now)
        nodes[0].failed(first, now - 1)
        for node in nodes:
            await node.hears(Restart(1, first))
        await stopped_by(nodes, stop)


@in_loop
async def test_a_member_lost_during_a_restart_ends_the_gang() -> None:
    async with Scene() as scene:
        config = settings(3, leave_within=60)
        hub, member = await add_hub(scene, config), await scene.node(1, config)
        lost = scene.process(2, 3, hub.place)
        await lost.line()
        nodes: list[Node] = [hub, member]
        await scene.joined(nodes)
        await train(nodes)
        await fails(nodes)
        for node in nodes:
            node.ended()
        lost.close()
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank, cause.code) == ("lost", 2, Exit.PEER_LOST)
            await node.hears(Finish())
        assert hub.prepared == [None]


@in_loop
async def test_processes_that_do_not_end_in_time_stop_the_gang_and_their_members_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 3, restart_within=92.0)
        overdue = hold_timers(monkeypatch, 92.0)
        await fails(nodes)
        hub.ended()
        fire(overdue)
        what = "killed; not started again: rank 1, 2 did not end within 92 s"
        await stopped_by(nodes, replace(KILLED, what=what))
        for node in nodes[1:]:
            node.ended()
        nodes[1].gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())
        assert hub.prepared == [None]


@in_loop
async def test_a_member_that_was_cut_off_during_the_restart_has_as_long_to_end_as_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(
            scene, heartbeat_every=0.05, restart_within=92.0, silence=60
        )
        overdue, asked_again = hold_timers(monkeypatch, 92.0), hold_timers(monkeypatch, 0.05)
        relay.hold(new=True)
        await until(lambda: relay.connections == 2, "both are cut off")
        hub.failed(died("trainer", 0, 137, "killed"))
        await hub.hears(Restart(1, died("trainer", 0, 137, "killed")))
        hub.ended()
        fire(overdue)
        for gate in relay.gates:
            gate.set()
        await until(lambda: member.attempt == 1, "it has heard of it")
        fire(asked_again[:1])
        await until(lambda: len(overdue) == 2, "its time begins")
        assert not hub.has(Stop)
        member.ended()
        await begin_again([hub, member])
        fire(overdue[1:])
        assert not hub.has(Stop)


@in_loop
async def test_the_time_limit_of_a_restart_does_not_include_the_preparation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2, restart_within=92.0)
        overdue = hold_timers(monkeypatch, 92.0)
        hub.may_begin.clear()
        await fails(nodes)
        for node in nodes:
            node.ended()
        await until(lambda: len(hub.prepared) == 2, "all have ended")
        fire(overdue)
        hub.may_begin.set()
        for node in nodes:
            await node.hears(SECOND)
            assert not node.has(Stop)


@in_loop
async def test_the_time_limit_of_an_earlier_restart_does_not_end_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Scene() as scene:
        _, nodes = await training(scene, 2, restart_within=92.0)
        overdue = hold_timers(monkeypatch, 92.0)
        await fails(nodes)
        await begin_again(nodes)
        other = died("pserver", 0, 139)
        await fails(nodes, other, attempt=2)
        fire(overdue[:1])
        await begin_again(nodes, THIRD)
        assert not any(node.has(Stop) for node in nodes)


@pytest.mark.parametrize("first", [True, False])
@in_loop
async def test_a_refused_start_stops_the_gang_with_its_own_cause(first: bool) -> None:
    async with Scene() as scene:
        given_up = replace(KILLED, what="killed; given up", final=True)
        config = settings(2)
        hub = await add_hub(scene, config)
        hub.starts[0 if first else 1] = StartRefused(given_up)
        nodes = [hub, await scene.node(1, config)]
        await scene.joined(nodes)
        if not first:
            await fails(nodes)
            for node in nodes:
                node.ended()
        await stopped_by(nodes, given_up)
        nodes[1].gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())
            assert times(node, Begin) == (0 if first else 1)
        assert hub.judged == ([] if first else [KILLED]), "it is judged already"


@in_loop
async def test_a_fault_of_the_launcher_in_a_restart_ends_the_gang() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2)
        hub.starts[1] = ZeroDivisionError("of the test")
        await fails(nodes)
        for node in nodes:
            node.ended()
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank, cause.code) == ("launcher", 0, Exit.MASKED)
            assert "a fault of the launcher itself" in cause.what
            assert "ZeroDivisionError('of the test')" in cause.what


@in_loop
async def test_trained_after_a_failure_does_not_complete_the_job() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 1)
        cause = died("pserver", 0, 137)
        hub.failed(cause)
        hub.trained()
        await hub.hears(Restart(1, cause))
        await begin_again(nodes)
        assert not hub.completions


async def fails_while_the_first_start_is_prepared(scene: Scene, first: Start | Exception, **how: bool) -> list[Node]:
    """Servers that start early may fail before the first attempt begins."""
    config = settings(2)
    hub = await add_hub(scene, config)
    hub.starts[0] = first
    hub.may_begin_first.clear()
    hub.ignores_cancel = how["ignores_cancel"]
    nodes = [hub, await scene.node(1, config)]
    await scene.joined(nodes)
    await until(lambda: hub.prepared, "the first start is being prepared")
    await fails(nodes, died("pserver", 1, 134))
    await until(lambda: hub.cancelled == [first], "the preparation of the first start is cancelled")
    await begin_again(nodes)
    return nodes


async def only_the_second_has_begun(nodes: list[Node]) -> None:
    await train(nodes)
    for node in nodes:
        assert [event for event in node.events if isinstance(event, Begin)] == [SECOND]
        assert not node.has(Stop)


@in_loop
async def test_a_restart_cancels_a_start_that_is_still_being_prepared() -> None:
    async with Scene() as scene:
        nodes = await fails_while_the_first_start_is_prepared(scene, FIRST, ignores_cancel=False)
        await only_the_second_has_begun(nodes)
        assert isinstance(nodes[0], HubNode)
        assert nodes[0].prepared_starts == [SECOND.start]


@pytest.mark.parametrize("first", [FIRST, StartRefused(died("volume", 0, 74))])
@in_loop
async def test_a_start_that_is_prepared_too_late_has_no_effect(first: Start | Exception) -> None:
    async with Scene() as scene:
        nodes = await fails_while_the_first_start_is_prepared(scene, first, ignores_cancel=True)
        hub = nodes[0]
        assert isinstance(hub, HubNode)
        hub.may_begin_first.set()
        await until(lambda: hub.prepared_starts == [SECOND.start, first], "the first start, too late")
        await only_the_second_has_begun(nodes)


# ---- the loss of a member --------------------------------------------------------------------------------------------


def rejoin_after_losses(cause: Cause) -> tuple[Cause, Verdict]:
    """Judge: form a new gang after the loss of a member, otherwise restart."""
    return cause, Verdict.REJOIN if cause.kind in ("lost", "stopped") else Verdict.RESTART


@in_loop
async def test_a_stop_cancels_the_preparation_of_a_start() -> None:
    async with Scene() as scene:
        config = settings(2)
        hub, member = await add_hub(scene, config), await scene.node(1, config)
        hub.may_begin_first.clear()
        await scene.joined([hub, member])
        member.failed(died("staging", 1, 66))
        await hub.told_to_stop()
        await until(lambda: hub.cancelled == [FIRST], "the preparation is cancelled")


@in_loop
async def test_all_finish_if_another_gang_has_completed_the_job() -> None:
    async with Scene() as scene:
        config = settings(2)
        hub, member = await add_hub(scene, config), await scene.node(1, config)
        hub.starts = [AlreadyComplete()]
        await scene.joined([hub, member])
        for node in (hub, member):
            await node.hears(Finish())
            assert node.events == [Finish()]
        assert not hub.completions


@pytest.mark.parametrize(("judge", "rejoin"), [(rejoin_after_losses, True), (restart_after_deaths, False)])
@in_loop
async def test_all_members_are_told_whether_to_rejoin_after_a_loss(
    judge: Callable[[Cause], tuple[Cause, Verdict]], rejoin: bool
) -> None:
    async with Scene() as scene:
        config = settings(3)
        hub, member, raw = await add_hub(scene, config, judge=judge), await scene.node(1, config), RawMember(2, 3)
        joining = asyncio.ensure_future(scene.joined([hub, member]))
        await until(lambda: hub.gang.joined_pods(), "a hub")
        await raw.join(hub.place)
        scene.others.append(raw)
        await joining
        await raw.is_lost_by_a_malformed_message()
        for node in (hub, member):
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank) == ("lost", 2)
            assert Stop(cause, rejoin) in node.events
        for node in (hub, member) if rejoin else ():
            node.gang.report_stopped()
        for node in (hub, member):
            await node.hears(Finish())
        assert not member.has(Restart)


@pytest.mark.parametrize("rank", [0, 1])
@in_loop
async def test_the_others_rejoin_once_a_member_that_was_told_to_stop_has_ended(rank: int) -> None:
    async with Scene() as scene:
        config = settings(3)
        hub = await add_hub(scene, config, judge=rejoin_after_losses)
        nodes: list[Node] = [hub, *[await scene.node(other, config) for other in (1, 2)]]
        await scene.joined(nodes)
        await train(nodes)
        cause = died("stopped", rank, 143)
        nodes[rank].failed(cause)
        for node in [node for node in nodes if node is not nodes[rank]]:
            await node.hears(Stop(cause, rejoin=True))
            node.gang.report_stopped()
        await nodes[rank].hears(Stop(cause, rejoin=True))
        await asyncio.sleep(0.2)
        assert not any(node.has(Finish) for node in nodes)
        nodes[rank].gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())
        assert hub.prepared == [None]


async def training_with_one_far_away(scene: Scene, config: GangSettings) -> tuple[HubNode, Node, Node, Relay]:
    """Return three nodes that train and rejoin after a loss, and the relay between the last one and the hub."""
    hub, near, far = (
        await add_hub(scene, config, judge=rejoin_after_losses),
        *[await scene.node(rank, config) for rank in (1, 2)],
    )
    relay = await scene.relay(hub.place)
    await asyncio.gather(hub.join(None), near.join(hub.place), far.join(relay.place))
    await train([hub, near, far])
    return hub, near, far, relay


@pytest.mark.parametrize("heals", [True, False])
@in_loop
async def test_no_member_rejoins_while_processes_may_run_on_the_other_side_of_a_cut(heals: bool) -> None:
    """A member that is not heard ends by itself, at the latest `silence` + `ends_within` after its last message."""
    async with Scene() as scene:
        config = settings(3, heartbeat_every=0.2, silence=2.0, silence_skew=0.0, grace=0.0 if heals else 1.0)
        hub, near, far, relay = await training_with_one_far_away(scene, config)
        relay.swallowing = True
        cut_at = time.monotonic()
        await until(hub.gang.remaining_run_time, "the silence")
        cause = died("stopped", 1, 143)
        near.failed(cause)
        for node in (hub, near):
            await node.hears(Stop(cause, rejoin=True))
            node.gang.report_stopped()
        assert not far.has(Stop)
        if heals:
            relay.swallowing = False
            relay.cut()
            await far.hears(Stop(cause, rejoin=True))
            assert not hub.has(Finish)
            far.gang.report_stopped()
        await asyncio.gather(hub.gang.wait_finished(), near.gang.wait_finished())
        took = time.monotonic() - cut_at
        assert took < 2.0 if heals else took >= 3.0 - 0.2


@in_loop
async def test_a_member_lost_by_silence_counts_as_running_until_it_must_have_noticed() -> None:
    async with Scene() as scene:
        times = {"heartbeat_every": 0.05, "silence": 0.5, "silence_skew": 0.0, "grace": 1.0}
        hub, member, relay = await training_through_a_relay(scene, rejoin_after_losses, rejoins=True, **times)
        relay.swallowing = True
        for node in (hub, member):
            assert (await node.told_to_stop()).silent
            node.gang.report_stopped()
        lost_at = time.monotonic()
        await asyncio.gather(hub.gang.wait_finished(), member.gang.wait_finished())
        assert time.monotonic() - lost_at > 0.8


@in_loop
async def test_a_hub_that_leaves_tells_for_how_long_a_silent_member_may_run() -> None:
    async with Scene() as scene:
        config = settings(3, heartbeat_every=0.05, silence=1.0, silence_skew=0.0, grace=0.5)
        hub, near, _, relay = await training_with_one_far_away(scene, config)
        relay.swallowing = True
        cut_at = time.monotonic()
        await until(hub.gang.remaining_run_time, "the silence")
        hub.failed(died("stopped", 0, 143))
        await near.told_to_stop()
        hub.gang.report_stopped()
        await hub.gang.close()
        await near.gang.wait_finished()
        assert time.monotonic() - cut_at >= 1.5 - 0.05


@in_loop
async def test_there_is_no_next_attempt_after_a_member_left_without_a_verdict() -> None:
    """As if the hub were frozen: it hears of the failure and of the leaving at once."""
    async with Scene() as scene:
        config = settings(3, rejoins=True, verdict_within=0.1, reports_within=0.5, restart_within=30)
        hub = HubNode(config)
        scene.nodes.append(hub)
        await hub.gang.listen()
        nodes = [hub, *[await scene.node(rank, config) for rank in (1, 2)]]
        await scene.joined(nodes)
        await train(nodes)
        nodes[2].failed(KILLED)
        await nodes[2].hears(Stop(KILLED, rejoin=True))
        nodes[2].gang.report_stopped()
        for node in nodes[:2]:
            await node.hears(Stop(KILLED, rejoin=True))
            assert not node.has(Restart)
            node.gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_a_member_that_reconnects_hears_that_the_others_rejoin() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene, judge=rejoin_after_losses)
        await disconnect(relay)
        cause = died("stopped", 0, 143)
        hub.failed(cause, time.monotonic() - 10)  # long before the cut, so the hub does not wait for the member
        await hub.hears(Stop(cause, rejoin=True))
        relay.refusing = False
        await member.hears(Stop(cause, rejoin=True))


@pytest.mark.parametrize("rejoins", [True, False])
@in_loop
async def test_after_a_loss_a_verdict_of_restart_becomes_a_stop(rejoins: bool) -> None:
    """An attempt without the lost member could never begin."""
    async with Scene() as scene:
        config = settings(3, reconnect_within=30, rejoins=rejoins)
        hub, member, raw = await add_hub(scene, config), await scene.node(1, config), RawMember(2, 3)
        relay = await scene.relay(hub.place)
        joining = asyncio.ensure_future(scene.joined([hub, member], hub=relay.place))
        await until(lambda: hub.gang.joined_pods(), "a hub")
        await raw.join(hub.place)
        scene.others.append(raw)
        await joining
        await disconnect(relay)  # while it may reconnect, the loss of the other member is not judged
        await raw.is_lost_by_a_malformed_message()
        cause = died("pserver", 0, 137)
        hub.failed(cause, time.monotonic() - 10)
        await hub.hears(Stop(cause, rejoin=rejoins))
        relay.refusing = False
        await member.hears(Stop(cause, rejoin=rejoins))
        assert hub.judged == [cause]
        assert not hub.has(Restart)
        assert not member.has(Restart)


@pytest.mark.parametrize("own", [None, died("trainer", 1, 137)])
@pytest.mark.parametrize("rejoins", [True, False])
@in_loop
async def test_a_member_that_loses_the_hub_rejoins_if_it_may_though_its_processes_have_died_of_it(
    rejoins: bool, own: Cause | None
) -> None:
    async with Scene() as scene:
        _, member, relay = await training_through_a_relay(
            scene, reconnect_within=0.5, verdict_within=60, rejoins=rejoins
        )
        await disconnect(relay)
        if own:
            member.failed(own, time.monotonic() - 10)
        cause = await member.told_to_stop()
        await member.hears(Finish())
        if rejoins or own is None:
            assert (cause.kind, cause.rank) == ("lost", 0)
        else:
            assert cause == own
        assert Stop(cause, rejoin=rejoins) in member.events


@in_loop
async def test_a_member_that_is_told_to_stop_and_loses_the_hub_does_not_rejoin() -> None:
    async with Scene() as scene:
        _, member, relay = await training_through_a_relay(scene, reconnect_within=0.5, verdict_within=60, rejoins=True)
        await disconnect(relay)
        cause = died("stopped", 1, 143)
        member.failed(cause, time.monotonic() - 10)
        await member.hears(Stop(cause, rejoin=False))
        await member.hears(Finish())
