"""A gang whose children have failed begins again: together, once, and only when nothing of the attempt before is left.

Where a member is gone it is over instead, and those who are left are told whether to gather again.
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


def again(cause: Cause) -> tuple[Cause, Verdict]:
    """A judge that lets every death of a child be followed by another attempt."""
    return cause, Verdict.RESTART if cause.kind in CHILDREN else Verdict.STOP


class Hub(Node):
    """Rank 0 of a gang that goes on. What it prepares waits for `may_begin_first`, and later for `may_begin`."""

    def __init__(self, config: GangSettings, judge: Callable[[Cause], tuple[Cause, Verdict]] = again) -> None:
        super().__init__(0, config, judge=judge)
        self.starts: list[Start | Exception] = [FIRST, SECOND.start, THIRD.start]
        self.prepared: list[Cause | None] = []
        self.settled: list[Start | Exception] = []
        self.cancelled: list[Start | Exception] = []
        self.stubborn = False  # what is cancelled is settled all the same
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
            if not self.stubborn:
                raise
            await may_begin.wait()
        self.settled.append(start)
        if isinstance(start, Exception):
            raise start
        return start


class Slow(Node):
    """A launcher that hears of what happens in its gang only when the test says so."""

    def __init__(self, rank: int, config: GangSettings) -> None:
        super().__init__(rank, config)
        self.unheard: list[Event] | None = None

    def sleeps(self) -> None:
        self.unheard = []

    def wakes(self) -> None:
        unheard, self.unheard = self.unheard or [], None
        for event in unheard:
            super()._on_event(event)

    def _on_event(self, event: Event) -> None:
        if self.unheard is None:
            super()._on_event(event)
        else:
            self.unheard.append(event)


class Bare:
    """A member that says what the test wants, also what no launcher would say."""

    def __init__(self, rank: int, size: int) -> None:
        self.me = Node(rank, settings(size)).me
        self.size = size
        self._writer: asyncio.StreamWriter | None = None

    async def join(self, place: tuple[str, int]) -> None:
        self._reader, self._writer = await asyncio.open_connection(*place)
        hub_nonce = handshake.read_challenge(protocol.decode(await self._reader.readline()))
        self.says(
            handshake.hello(Credentials(self.me, "bare", "job", SECRET), Shape(self.size), None, hub_nonce, "mine")
        )

    def says(self, *said: Message) -> None:
        assert self._writer is not None
        for message in said:
            self._writer.write(encode(message))

    async def is_lost_by_nonsense(self) -> None:
        """The hub ends the connection, and does not wait for a return."""
        self.says({"word": "nonsense"})
        while await self._reader.read(65536):
            pass

    def close(self) -> None:
        assert self._writer is not None
        self._writer.close()


async def lead(scene: Scene, config: GangSettings, **more: Any) -> Hub:
    hub = Hub(replace(config, reports_within=0.05), **more)
    scene.nodes.append(hub)
    await hub.gang.listen()
    return hub


async def training(scene: Scene, size: int, **changes: Any) -> tuple[Hub, list[Node]]:
    """The hub, and all nodes with it, in their first attempt."""
    config = settings(size, **changes)
    hub = await lead(scene, config)
    nodes: list[Node] = [hub, *[await scene.node(rank, config) for rank in range(1, size)]]
    await scene.joined(nodes)
    await train(nodes)
    return hub, nodes


async def training_through_a_relay(
    scene: Scene, judge: Callable[[Cause], tuple[Cause, Verdict]] = again, **changes: Any
) -> tuple[Hub, Node, Relay]:
    """Two that train; a cut is not noticed as a loss, however long the test takes."""
    config = settings(2, **{"reconnect_within": 30, **changes})
    hub, member = await lead(scene, config, judge=judge), await scene.node(1, config)
    relay = await scene.relay(hub.place)
    await scene.joined([hub, member], hub=relay.place)
    await train([hub, member])
    return hub, member, relay


async def training_with_a_slow_member(scene: Scene) -> tuple[Hub, Slow]:
    config = settings(2)
    hub, slow = await lead(scene, config), Slow(1, config)
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
    """A child dies, and everybody hears of it."""
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


def held_back(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[asyncio.TimerHandle]:
    """Timers of just so many seconds, which the test runs by itself."""
    loop, timers = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def later(delay: float, *call: Any, **more: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, *call, **more)
        if delay == seconds:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", later)
    return timers


def is_due(timers: list[asyncio.TimerHandle]) -> None:
    """The time of the only one is over."""
    (timer,) = timers
    if not timer.cancelled():
        timer._run()
        timer.cancel()


# ---- the good way ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1])
@in_loop
async def test_the_next_attempt_begins_once_all_have_ended_and_its_start_is_settled(culprit: int) -> None:
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
        await until(lambda: hub.prepared == [None, cause], "what is prepared knows the cause")
        await asyncio.sleep(0.03)
        assert [times(node, Begin) for node in nodes] == [1, 1, 1], "begun before its start was settled"
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
async def test_a_gang_of_one_begins_again() -> None:
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
async def test_the_same_failure_in_the_next_attempt_is_one_of_its_own() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2)
        await fails(nodes)
        await begin_again(nodes)
        await fails(nodes, attempt=2)
        assert hub.judged == [KILLED, KILLED]


@in_loop
async def test_what_is_copied_need_not_be_said_again() -> None:
    """One member is still copying when another one's server dies."""
    async with Scene() as scene:
        config = settings(2)
        hub, member = await lead(scene, config), await scene.node(1, config)
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
async def test_all_are_told_the_cause_as_it_was_judged() -> None:
    async with Scene() as scene:
        judged = replace(KILLED, what="killed, as the judge says")
        config = settings(2)
        hub = await lead(scene, config, judge=lambda cause: (judged, Verdict.RESTART))
        nodes = [hub, await scene.node(1, config)]
        await scene.joined(nodes)
        nodes[1].failed(KILLED)
        for node in nodes:
            await node.hears(Restart(1, judged))
            node.ended()
        await hub.hears(SECOND)
        assert hub.prepared == [None, judged]


@in_loop
async def test_who_died_of_the_first_cause_does_not_fail_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2, verdict_within=91.0)
        timers = held_back(monkeypatch, 91.0)
        cause, now = died("pserver", 0, 137), time.monotonic()
        nodes[1].failed(died("trainer", 1, 139), now)
        nodes[0].failed(cause, now - 1)
        for node in nodes:
            await node.hears(Restart(1, cause))
        await begin_again(nodes)
        assert [timer.cancelled() for timer in timers] == [True], "it would stop by itself for want of a verdict"
        await serve_again(nodes)
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop)
        assert hub.judged == [cause]


@in_loop
async def test_a_judge_that_says_no_ends_the_gang_in_any_attempt() -> None:
    async with Scene() as scene:
        config = settings(2)
        hub = await lead(scene, config, judge=lambda cause: again(cause) if cause == KILLED else (cause, Verdict.STOP))
        nodes = [hub, await scene.node(1, config)]
        await scene.joined(nodes)
        await fails(nodes)
        await begin_again(nodes)
        cause = died("trainer", 1, 78)
        nodes[1].failed(cause)
        await stopped_by(nodes, cause)
        assert [times(node, Restart) for node in nodes] == [1, 1]


# ---- messages of another attempt -------------------------------------------------------------------------------------


async def second_attempt_with_a_bare_member(scene: Scene) -> tuple[Hub, Bare]:
    """It has begun; nobody serves yet."""
    hub, bare = await lead(scene, settings(2)), Bare(1, 2)
    joining = asyncio.ensure_future(hub.join(None))
    await bare.join(hub.place)
    scene.others.append(bare)
    await joining
    bare.says(messages.plain("staged"), messages.of_attempt("serving", 0))
    await train([hub])
    bare.says(messages.failed(0, KILLED, 0.0))
    await hub.hears(Restart(1, KILLED))
    hub.ended()
    bare.says(messages.of_attempt("ended", 1))
    await hub.hears(SECOND)
    return hub, bare


def fails_in_attempt(number: int) -> Message:
    return messages.failed(number, died("trainer", 1, 3), 0.0)


@pytest.mark.parametrize("attempt", [0, 2])
@in_loop
async def test_a_server_of_another_attempt_lets_nobody_train(attempt: int) -> None:
    async with Scene() as scene:
        hub, bare = await second_attempt_with_a_bare_member(scene)
        hub.serving()
        bare.says(messages.of_attempt("serving", attempt), fails_in_attempt(1))
        await hub.hears(Restart(2, died("trainer", 1, 3)))
        assert times(hub, Train) == 1


@pytest.mark.parametrize("attempt", [0, 2])
@in_loop
async def test_what_was_trained_in_another_attempt_completes_nothing(attempt: int) -> None:
    async with Scene() as scene:
        hub, bare = await second_attempt_with_a_bare_member(scene)
        hub.serving()
        hub.trained()
        bare.says(messages.of_attempt("serving", 1), messages.of_attempt("trained", attempt), fails_in_attempt(1))
        await hub.hears(Restart(2, died("trainer", 1, 3)))
        assert hub.completions == 0


@pytest.mark.parametrize("attempt", [0, 2])
@in_loop
async def test_a_death_of_another_attempt_fails_nothing(attempt: int) -> None:
    async with Scene() as scene:
        hub, bare = await second_attempt_with_a_bare_member(scene)
        hub.trained()
        bare.says(fails_in_attempt(attempt), messages.of_attempt("trained", 1))
        await hub.hears(Finish())
        assert hub.judged == [KILLED]


@in_loop
async def test_who_ended_for_another_restart_is_waited_for() -> None:
    async with Scene() as scene:
        hub, bare = await second_attempt_with_a_bare_member(scene)
        bare.says(fails_in_attempt(1))
        await hub.hears(Restart(2, died("trainer", 1, 3)))
        hub.ended()
        stop = died("stopped", 1, 143)
        bare.says(messages.of_attempt("ended", 1), messages.failed(2, stop, 0.0))
        assert await hub.told_to_stop() == stop
        assert hub.prepared == [None, KILLED]


async def sleeps_through_a_restart(hub: Hub, slow: Slow) -> None:
    """Its gang has heard it, but the launcher has not."""
    slow.sleeps()
    cause = died("pserver", 0, 137)
    hub.failed(cause)
    await until(lambda: Restart(slow.attempt + 1, cause) in (slow.unheard or []), "the restart, not yet heard")


@in_loop
async def test_a_death_that_is_told_before_the_restart_is_heard_does_not_fail_the_next_attempt() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_member(scene)
        await sleeps_through_a_restart(hub, slow)
        slow.failed(died("trainer", 1, 139))
        slow.wakes()
        await begin_again([hub, slow])
        await serve_again([hub, slow])
        assert hub.judged == [died("pserver", 0, 137)]


@in_loop
async def test_what_has_trained_before_the_restart_is_heard_is_not_complete() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_member(scene)
        await sleeps_through_a_restart(hub, slow)
        slow.trained()
        slow.wakes()
        await begin_again([hub, slow])
        await serve_again([hub, slow])
        hub.trained()
        await fails([hub, slow], attempt=2)
        assert not hub.completions


@in_loop
async def test_who_serves_before_the_restart_is_heard_does_not_serve_the_next_attempt() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_member(scene)
        await sleeps_through_a_restart(hub, slow)
        slow.serving()
        slow.wakes()
        await begin_again([hub, slow])
        hub.serving()
        await fails([hub, slow], attempt=2)
        assert times(hub, Train) == 1


@in_loop
async def test_who_has_ended_before_a_further_restart_is_heard_has_not_ended_for_that() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_member(scene)
        await fails([hub, slow])
        await begin_again([hub, slow])
        await sleeps_through_a_restart(hub, slow)
        slow.ended()
        hub.ended()
        stop = died("stopped", 1, 143)
        slow.failed(stop)
        assert await hub.told_to_stop() == stop
        assert hub.prepared == [None, KILLED]


@in_loop
async def test_a_stop_that_is_told_before_the_restart_is_heard_ends_the_gang() -> None:
    async with Scene() as scene:
        hub, slow = await training_with_a_slow_member(scene)
        await sleeps_through_a_restart(hub, slow)
        stop = died("stopped", 1, 143)
        slow.failed(stop)
        slow.wakes()
        await stopped_by([hub, slow], stop)


# ---- cuts ------------------------------------------------------------------------------------------------------------


async def goes_away(relay: Relay) -> None:
    relay.away = True
    relay.cut()
    before = relay.connections
    await until(lambda: relay.connections > before, "a try to return")


@in_loop
async def test_a_member_that_returns_hears_of_the_restart_that_it_missed() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        member.trained()
        await goes_away(relay)
        cause = died("trainer", 0, 3)
        hub.failed(cause, time.monotonic() - 10)  # long before the cut: nobody is waited for
        await hub.hears(Restart(1, cause))
        assert not member.has(Restart)
        relay.away = False
        await member.hears(Restart(1, cause))
        nodes: list[Node] = [hub, member]
        await begin_again(nodes)
        await serve_again(nodes)
        hub.trained()
        await asyncio.sleep(0.03)
        assert not hub.completions, "what it said again of the attempt before counts in this one"
        member.trained()
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_a_member_that_ended_while_it_was_cut_off_says_so_on_its_return() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        await fails([hub, member])
        await goes_away(relay)
        for node in (hub, member):
            node.ended()
        relay.away = False
        for node in (hub, member):
            await node.hears(SECOND)


@in_loop
async def test_a_member_that_returns_after_the_begin_hears_it_and_what_came_before_only_once() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene)
        hub.may_begin.clear()
        await fails([hub, member])
        for node in (hub, member):
            node.ended()
        await until(lambda: len(hub.prepared) == 2, "all have ended")
        await goes_away(relay)
        hub.may_begin.set()
        await hub.hears(SECOND)
        assert SECOND not in member.events
        relay.away = False
        await member.hears(SECOND)
        member.serving()
        await until(lambda: relay.passed.count(b'"serving","turn":1') == 1, "the member serves")
        await goes_away(relay)
        hub.serving()
        relay.away = False
        for node in (hub, member):
            await until(lambda node=node: times(node, Train) == 2, "the second Train")  # type: ignore[misc]
        assert member.events == [BEGUN, Train(), Restart(1, KILLED), SECOND, Train()]


@in_loop
async def test_who_had_trained_before_the_restart_does_not_go_by_the_mark_when_the_hub_is_lost() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene, reconnect_within=0.5)
        member.trained()
        await fails([hub, member], died("trainer", 0, 3))
        relay.away = True
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
        hub, member = await lead(scene, config), await scene.node(1, config)
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
async def test_children_that_do_not_end_in_time_end_the_gang_with_the_first_cause_and_say_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 3, restart_within=92.0)
        overdue = held_back(monkeypatch, 92.0)
        await fails(nodes)
        hub.ended()
        is_due(overdue)
        overdue_too = "killed; not started again: rank 1, 2 did not end within 92 s"
        await stopped_by(nodes, replace(KILLED, what=overdue_too))
        for node in nodes[1:]:
            node.ended()
        nodes[1].gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())
        assert hub.prepared == [None]


@in_loop
async def test_who_was_cut_off_when_all_were_to_end_their_children_has_as_long_for_it_as_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(
            scene, heartbeat_every=0.05, restart_within=92.0, silence=60
        )
        overdue, asked_again = held_back(monkeypatch, 92.0), held_back(monkeypatch, 0.05)
        relay.hold(new=True)
        await until(lambda: relay.connections == 2, "both are cut off")
        hub.failed(died("trainer", 0, 137, "killed"))
        await hub.hears(Restart(1, died("trainer", 0, 137, "killed")))
        hub.ended()
        is_due(overdue)
        for gate in relay.gates:
            gate.set()
        await until(lambda: member.attempt == 1, "it has heard of it")
        is_due(asked_again[:1])
        await until(lambda: len(overdue) == 2, "its time begins")
        assert not hub.has(Stop)
        member.ended()
        await begin_again([hub, member])
        is_due(overdue[1:])
        assert not hub.has(Stop)


@in_loop
async def test_the_bound_is_for_the_children_to_end_and_not_for_what_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 2, restart_within=92.0)
        overdue = held_back(monkeypatch, 92.0)
        hub.may_begin.clear()
        await fails(nodes)
        for node in nodes:
            node.ended()
        await until(lambda: len(hub.prepared) == 2, "all have ended")
        is_due(overdue)
        hub.may_begin.set()
        for node in nodes:
            await node.hears(SECOND)
            assert not node.has(Stop)


@in_loop
async def test_a_bound_of_an_earlier_restart_does_not_end_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Scene() as scene:
        _, nodes = await training(scene, 2, restart_within=92.0)
        overdue = held_back(monkeypatch, 92.0)
        await fails(nodes)
        await begin_again(nodes)
        other = died("pserver", 0, 139)
        await fails(nodes, other, attempt=2)
        is_due(overdue[:1])
        await begin_again(nodes, THIRD)
        assert not any(node.has(Stop) for node in nodes)


@pytest.mark.parametrize("first", [True, False])
@in_loop
async def test_a_start_that_may_not_be_ends_the_gang_with_its_own_cause(first: bool) -> None:
    async with Scene() as scene:
        given_up = replace(KILLED, what="killed; given up", final=True)
        config = settings(2)
        hub = await lead(scene, config)
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
async def test_who_trains_to_the_end_after_a_death_is_not_complete() -> None:
    async with Scene() as scene:
        hub, nodes = await training(scene, 1)
        cause = died("pserver", 0, 137)
        hub.failed(cause)
        hub.trained()
        await hub.hears(Restart(1, cause))
        await begin_again(nodes)
        assert not hub.completions


async def fails_while_the_first_start_is_settled(scene: Scene, first: Start | Exception, **how: bool) -> list[Node]:
    """Servers that start early may fail before the first attempt begins."""
    config = settings(2)
    hub = await lead(scene, config)
    hub.starts[0] = first
    hub.may_begin_first.clear()
    hub.stubborn = how["stubborn"]
    nodes = [hub, await scene.node(1, config)]
    await scene.joined(nodes)
    await until(lambda: hub.prepared, "the first start is being settled")
    await fails(nodes, died("pserver", 1, 134))
    await until(lambda: hub.cancelled == [first], "nobody waits for the first start any more")
    await begin_again(nodes)
    return nodes


async def only_the_second_has_begun(nodes: list[Node]) -> None:
    await train(nodes)
    for node in nodes:
        assert [event for event in node.events if isinstance(event, Begin)] == [SECOND]
        assert not node.has(Stop)


@in_loop
async def test_a_restart_cancels_a_start_that_is_still_being_settled() -> None:
    async with Scene() as scene:
        nodes = await fails_while_the_first_start_is_settled(scene, FIRST, stubborn=False)
        await only_the_second_has_begun(nodes)
        assert isinstance(nodes[0], Hub)
        assert nodes[0].settled == [SECOND.start]


@pytest.mark.parametrize("first", [FIRST, StartRefused(died("volume", 0, 74))])
@in_loop
async def test_a_start_that_is_settled_too_late_begins_and_ends_nothing(first: Start | Exception) -> None:
    async with Scene() as scene:
        nodes = await fails_while_the_first_start_is_settled(scene, first, stubborn=True)
        hub = nodes[0]
        assert isinstance(hub, Hub)
        hub.may_begin_first.set()
        await until(lambda: hub.settled == [SECOND.start, first], "the first start, too late")
        await only_the_second_has_begun(nodes)


# ---- a member that is gone -------------------------------------------------------------------------------------------


def gather(cause: Cause) -> tuple[Cause, Verdict]:
    """A judge that lets the others gather again where a member is gone."""
    return cause, Verdict.REJOIN if cause.kind in ("lost", "stopped") else Verdict.RESTART


@in_loop
async def test_a_stop_ends_what_is_settled_for_a_start() -> None:
    async with Scene() as scene:
        config = settings(2)
        hub, member = await lead(scene, config), await scene.node(1, config)
        hub.may_begin_first.clear()
        await scene.joined([hub, member])
        member.failed(died("staging", 1, 66))
        await hub.told_to_stop()
        await until(lambda: hub.cancelled == [FIRST], "nobody waits for it")


@in_loop
async def test_where_another_gang_has_completed_the_job_nothing_begins_and_all_finish() -> None:
    async with Scene() as scene:
        config = settings(2)
        hub, member = await lead(scene, config), await scene.node(1, config)
        hub.starts = [AlreadyComplete()]
        await scene.joined([hub, member])
        for node in (hub, member):
            await node.hears(Finish())
            assert node.events == [Finish()]
        assert not hub.completions


@pytest.mark.parametrize(("judge", "again_then"), [(gather, True), (again, False)])
@in_loop
async def test_all_are_told_whether_to_gather_again_after_a_loss(
    judge: Callable[[Cause], tuple[Cause, Verdict]], again_then: bool
) -> None:
    async with Scene() as scene:
        config = settings(3)
        hub, member, bare = await lead(scene, config, judge=judge), await scene.node(1, config), Bare(2, 3)
        joining = asyncio.ensure_future(scene.joined([hub, member]))
        await until(lambda: hub.gang.joined_pods(), "a hub")
        await bare.join(hub.place)
        scene.others.append(bare)
        await joining
        await bare.is_lost_by_nonsense()
        for node in (hub, member):
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank) == ("lost", 2)
            assert Stop(cause, again_then) in node.events
        for node in (hub, member) if again_then else ():
            node.gang.report_stopped()
        for node in (hub, member):
            await node.hears(Finish())
        assert not member.has(Restart)


@pytest.mark.parametrize("rank", [0, 1])
@in_loop
async def test_who_is_told_to_stop_lets_the_others_gather_again_once_it_has_ended(rank: int) -> None:
    async with Scene() as scene:
        config = settings(3)
        hub = await lead(scene, config, judge=gather)
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


async def training_with_one_far_away(scene: Scene, config: GangSettings) -> tuple[Hub, Node, Node, Relay]:
    """Three that train, and gather again where one is gone; the last one is connected through a relay."""
    hub, near, far = await lead(scene, config, judge=gather), *[await scene.node(rank, config) for rank in (1, 2)]
    relay = await scene.relay(hub.place)
    await asyncio.gather(hub.join(None), near.join(hub.place), far.join(relay.place))
    await train([hub, near, far])
    return hub, near, far, relay


@pytest.mark.parametrize("heals", [True, False])
@in_loop
async def test_nobody_gathers_again_while_children_may_run_beyond_a_cut(heals: bool) -> None:
    """What is not heard of ends by itself, at the latest `silence` and `ends_within` after its last word."""
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
async def test_who_is_lost_in_silence_may_run_for_as_long_as_it_takes_to_notice_that() -> None:
    async with Scene() as scene:
        times = {"heartbeat_every": 0.05, "silence": 0.5, "silence_skew": 0.0, "grace": 1.0}
        hub, member, relay = await training_through_a_relay(scene, gather, rejoins=True, **times)
        relay.swallowing = True
        for node in (hub, member):
            assert (await node.told_to_stop()).silent
            node.gang.report_stopped()
        lost_at = time.monotonic()
        await asyncio.gather(hub.gang.wait_finished(), member.gang.wait_finished())
        assert time.monotonic() - lost_at > 0.8


@in_loop
async def test_a_hub_that_leaves_tells_for_how_long_somebody_silent_may_run() -> None:
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
async def test_who_had_no_verdict_in_time_and_left_is_missing_in_the_next_attempt() -> None:
    """The hub was frozen, and learns both at once."""
    async with Scene() as scene:
        config = settings(3, rejoins=True, verdict_within=0.1, reports_within=0.5, restart_within=30)
        hub = Hub(config)
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
async def test_a_member_that_returns_hears_that_the_others_gather_again() -> None:
    async with Scene() as scene:
        hub, member, relay = await training_through_a_relay(scene, judge=gather)
        await goes_away(relay)
        cause = died("stopped", 0, 143)
        hub.failed(cause, time.monotonic() - 10)  # long before the cut: nobody is waited for
        await hub.hears(Stop(cause, rejoin=True))
        relay.away = False
        await member.hears(Stop(cause, rejoin=True))


@pytest.mark.parametrize("rejoins", [True, False])
@in_loop
async def test_where_a_member_is_lost_already_a_restart_is_a_stop(rejoins: bool) -> None:
    """An attempt without it could never begin."""
    async with Scene() as scene:
        config = settings(3, reconnect_within=30, rejoins=rejoins)
        hub, member, bare = await lead(scene, config), await scene.node(1, config), Bare(2, 3)
        relay = await scene.relay(hub.place)
        joining = asyncio.ensure_future(scene.joined([hub, member], hub=relay.place))
        await until(lambda: hub.gang.joined_pods(), "a hub")
        await bare.join(hub.place)
        scene.others.append(bare)
        await joining
        await goes_away(relay)  # as long as it may return, no loss that came later is the first cause
        await bare.is_lost_by_nonsense()
        cause = died("pserver", 0, 137)
        hub.failed(cause, time.monotonic() - 10)
        await hub.hears(Stop(cause, rejoin=rejoins))
        relay.away = False
        await member.hears(Stop(cause, rejoin=rejoins))
        assert hub.judged == [cause]
        assert not hub.has(Restart)
        assert not member.has(Restart)


@pytest.mark.parametrize("own", [None, died("trainer", 1, 137)])
@pytest.mark.parametrize("rejoins", [True, False])
@in_loop
async def test_who_loses_the_hub_gathers_again_where_it_may_even_if_its_children_have_died_of_it(
    rejoins: bool, own: Cause | None
) -> None:
    async with Scene() as scene:
        _, member, relay = await training_through_a_relay(
            scene, reconnect_within=0.5, verdict_within=60, rejoins=rejoins
        )
        await goes_away(relay)
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
async def test_who_is_told_to_stop_and_loses_the_hub_does_not_gather_again() -> None:
    async with Scene() as scene:
        _, member, relay = await training_through_a_relay(scene, reconnect_within=0.5, verdict_within=60, rejoins=True)
        await goes_away(relay)
        cause = died("stopped", 1, 143)
        member.failed(cause, time.monotonic() - 10)
        await member.hears(Stop(cause, rejoin=False))
        await member.hears(Finish())
