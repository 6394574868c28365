"""A survey asks all members, once each, and ends when all have answered or the time is over."""

from __future__ import annotations

import asyncio

from launcher.gang import Collect, Stop, Verdict
from launcher.model import MemberReport, ProcessState
from tests.support.members import Node, Scene, died, in_loop, settings, until

HANGS = MemberReport("training", 2, (ProcessState("trainer", "read, train.py:42", "get, queue.py:171", 41.0),))


def answers(node: Node, survey: int, report: MemberReport = HANGS) -> None:
    node.gang.report_collected(survey, report)


@in_loop
async def test_a_survey_returns_the_answers_of_all_members_by_rank() -> None:
    async with Scene() as scene:
        nodes = await scene.training(3)
        asked = asyncio.ensure_future(nodes[0].gang.survey(60))
        for node in nodes:
            await node.hears(Collect(0, to_file=False))
            answers(node, 0)
        assert await asked == {0: HANGS, 1: HANGS, 2: HANGS}


@in_loop
async def test_a_member_that_does_not_answer_in_time_has_no_answer() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        asked = asyncio.ensure_future(nodes[0].gang.survey(0.2))
        await nodes[0].hears(Collect(0, to_file=False))
        answers(nodes[0], 0)
        assert await asked == {0: HANGS}
        answers(nodes[1], 0)  # too late
        again = asyncio.ensure_future(nodes[0].gang.survey(60))
        for node in nodes:
            await node.hears(Collect(1, to_file=False))
            answers(node, 1, MemberReport("trained", 0, ()))
        assert set((await again or {}).values()) == {MemberReport("trained", 0, ())}


@in_loop
async def test_only_the_hub_of_a_complete_gang_can_ask() -> None:
    async with Scene() as scene:
        hub = await scene.node(0, settings(2))
        assert await hub.gang.survey(60) is None
        nodes = await scene.gang(2)
        assert await nodes[1].gang.survey(60) is None


@in_loop
async def test_a_member_that_reconnects_answers_and_hears_each_survey_once() -> None:
    async with Scene() as scene:
        config = settings(2, reconnect_within=30)
        hub, member = await scene.node(0, config), await scene.node(1, config)
        relay = await scene.relay(hub.place)
        await scene.joined([hub, member], hub=relay.place)
        relay.refusing = True
        relay.cut()
        asked = asyncio.ensure_future(hub.gang.survey(60))
        await hub.hears(Collect(0, to_file=False))
        answers(hub, 0)
        assert not member.has(Collect)
        relay.refusing = False
        await member.hears(Collect(0, to_file=False))
        relay.cut()
        answers(member, 0)
        assert set(await asked or {}) == {0, 1}
        assert member.events.count(Collect(0, to_file=False)) == 1


@in_loop
async def test_a_survey_ends_with_the_answers_so_far_if_the_gang_ends() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2, judge=lambda cause: (cause, Verdict.STOP))
        asked = asyncio.ensure_future(nodes[0].gang.survey(60))
        await nodes[0].hears(Collect(0, to_file=False))
        answers(nodes[0], 0)
        nodes[1].failed(died("trainer", 1, 3))
        await until(lambda: nodes[0].has(Stop))
        await nodes[0].gang.close()
        assert await asked == {0: HANGS}


@in_loop
async def test_a_user_who_goes_away_disturbs_nothing() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        asked = asyncio.ensure_future(nodes[0].gang.survey(60))
        for node in nodes:
            await node.hears(Collect(0, to_file=False))
        asked.cancel()
        for node in nodes:
            answers(node, 0)
            node.trained()
        await nodes[0].gang.wait_finished()
