"""What ends a gang during a restart, or while an attempt is prepared."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from launcher.errors import Exit
from launcher.gang import (
    Begin,
    Finish,
    Restart,
    StartRefused,
    Stop,
)
from launcher.model import FIRST, Start
from tests.support.hubs import (
    KILLED,
    SECOND,
    THIRD,
    HubNode,
    add_hub,
    begin_again,
    fails,
    fire,
    hold_timers,
    stopped_by,
    times,
    train,
    training,
    training_through_a_relay,
)
from tests.support.members import Node, Scene, died, in_loop, settings, until


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


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("start", [Start(1 << 31, None), Start(4, 20261119094500)])
@in_loop
async def test_a_start_that_no_member_would_accept_ends_the_gang(first: bool, start: Start) -> None:
    async with Scene() as scene:
        config = settings(2)
        hub = await add_hub(scene, config)
        hub.starts[0 if first else 1] = start
        nodes = [hub, await scene.node(1, config)]
        await scene.joined(nodes)
        if not first:
            await fails(nodes)
            for node in nodes:
                node.ended()
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank, cause.code) == ("launcher", 0, Exit.MASKED)
            assert "cannot send begin: its field " in cause.what
            assert times(node, Begin) == (0 if first else 1)


@in_loop
async def test_a_message_that_cannot_be_made_is_an_error_of_the_loop() -> None:
    """The launcher ends with each error of its loop. Until then, the member only reconnects."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
    async with Scene() as scene:
        config = settings(2, stall=1e9)
        hub, member = await add_hub(scene, config), await scene.node(1, config)
        await scene.joined([hub, member])
        hub.ready()
        member.ready()
        await until(lambda: errors, "an error")
        assert "cannot send train: its field stall" in str(errors[0])
        assert not member.has(Stop)


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
