"""After a failure of a process the hub restarts all members together, once no process of the attempt is left."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from launcher.gang import (
    Begin,
    Finish,
    Lead,
    Restart,
    Stop,
    Train,
    Verdict,
    messages,
)
from launcher.gang.protocol import Message
from tests.support.hubs import (
    KILLED,
    SECOND,
    THIRD,
    HubNode,
    RawMember,
    SlowNode,
    add_hub,
    begin_again,
    fails,
    hold_timers,
    restart_after_deaths,
    serve_again,
    stopped_by,
    times,
    train,
    training,
    training_with_a_slow_node,
)
from tests.support.members import BEGUN, Node, Scene, died, in_loop, settings, until

# ---- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1])
@in_loop
async def test_the_next_attempt_begins_after_all_members_have_ended_and_it_is_prepared(culprit: int) -> None:
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
async def test_a_second_attempt_trains_to_the_end_and_completes_the_job_once() -> None:
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
    """One member still copies while a server of another member dies."""
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
async def test_all_members_get_the_cause_that_the_judge_returns() -> None:
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
