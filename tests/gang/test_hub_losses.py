"""After the loss of a member, the hub stops the gang, and its message says whether the members rejoin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from launcher.gang import (
    AlreadyComplete,
    Finish,
    GangSettings,
    Restart,
    Stop,
    Verdict,
)
from launcher.model import FIRST, Cause
from tests.support.hubs import (
    KILLED,
    HubNode,
    RawMember,
    add_hub,
    disconnect,
    rejoin_after_losses,
    restart_after_deaths,
    train,
    training_through_a_relay,
)
from tests.support.members import Node, Relay, Scene, died, in_loop, settings, until


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
async def test_after_a_loss_the_stop_message_says_whether_to_rejoin(
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
async def test_all_other_members_rejoin_after_a_member_that_got_sigterm_has_ended(rank: int) -> None:
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
    """An unheard member ends by itself, at the latest `silence` + `ends_within` after its last message."""
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
        times = {"heartbeat_every": 0.2, "silence": 1.0, "silence_skew": 0.0, "grace": 1.0}
        hub, member, relay = await training_through_a_relay(scene, rejoin_after_losses, rejoins=True, **times)
        relay.swallowing = True
        for node in (hub, member):
            assert (await node.told_to_stop()).silent
            node.gang.report_stopped()
        lost_at = time.monotonic()
        await asyncio.gather(hub.gang.wait_finished(), member.gang.wait_finished())
        assert time.monotonic() - lost_at > 0.8


@in_loop
async def test_a_leaving_hub_reports_for_how_long_a_silent_member_may_run() -> None:
    async with Scene() as scene:
        config = settings(3, heartbeat_every=0.2, silence=1.0, silence_skew=0.0, grace=0.5)
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
    """This is like a frozen hub: it gets the failure and the end of the member at the same time."""
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
async def test_a_member_that_reconnects_gets_the_message_that_the_others_rejoin() -> None:
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
async def test_a_member_that_loses_the_hub_may_rejoin_although_its_processes_have_died_because_of_it(
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
async def test_a_member_that_gets_sigterm_and_loses_the_hub_does_not_rejoin() -> None:
    async with Scene() as scene:
        _, member, relay = await training_through_a_relay(scene, reconnect_within=0.5, verdict_within=60, rejoins=True)
        await disconnect(relay)
        cause = died("stopped", 1, 143)
        member.failed(cause, time.monotonic() - 10)
        await member.hears(Stop(cause, rejoin=False))
        await member.hears(Finish())
