"""The hub of an elastic gang agrees with all members on a step after which all trainers save and end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from launcher.errors import Exit
from launcher.gang import Elastic, Event, Hold, Stop, Train, Until, Verdict
from launcher.model import Cause, CauseKind
from tests.support.members import Node, in_loop, settings, until

STOPPED = Cause(CauseKind.STOPPED, 1, "pod-1", "got SIGTERM", Exit.STOPPED)
Answer = Callable[[int], int | None]


async def training(answer: Answer, *, count: int = 3, grace: float = 20.0, within: float = 5.0) -> list[Node]:
    """Return the members of a gang that trains. `answer`: the step that each rank reports when it is held."""
    config = settings(4, elastic=Elastic(1, 1000, returning=count), rejoins=True, grace=grace, agreed_within=within)
    nodes: list[Node] = []

    def tell(rank: int) -> Callable[[Event], None]:
        def told(event: Event) -> None:
            if isinstance(event, Hold) and (step := answer(rank)) != SILENT:
                nodes[rank].gang.report_reached(0, step)

        return told

    judge = lambda cause: (cause, Verdict.REJOIN)  # noqa: E731
    nodes += [Node(rank, config, uid=f"uid-{rank}", judge=judge, tell=tell(rank)) for rank in range(count)]
    await nodes[0].gang.listen()
    for node in nodes[1:]:
        await node.gang.listen()
    await asyncio.gather(nodes[0].join(None), *(node.join(nodes[0].place) for node in nodes[1:]))
    for node in nodes:
        node.gang.report_staged()
        node.gang.report_serving()
    for node in nodes:
        await until(lambda: node.has(Train))  # noqa: B023
    return nodes


SILENT = -1


async def end(nodes: list[Node]) -> None:
    await asyncio.gather(*(node.gang.close() for node in nodes))


def steps(node: Node) -> list[int]:
    return [event.step for event in node.events if isinstance(event, Until)]


@in_loop
async def test_all_trainers_end_after_a_step_that_none_can_have_left_and_the_gang_stops() -> None:
    nodes = await training(lambda rank: 7 + rank)
    assert await nodes[0].gang.resize_at_step("the job grows")
    for node in nodes:
        await until(lambda: steps(node) == [11])  # noqa: B023
    assert not any(node.has(Stop) for node in nodes)
    nodes[0].gang.resize("the pass is saved: too late")
    for node in nodes:
        node.gang.report_trained()
    for node in nodes:
        await until(lambda: node.has(Stop))  # noqa: B023
        (stop,) = (event for event in node.events if isinstance(event, Stop))
        assert (stop.cause.kind, stop.cause.what, stop.rejoin) == (CauseKind.RESIZED, "the job grows", True)
    assert not nodes[0].completions, "the job is not complete"
    await end(nodes)


@pytest.mark.parametrize("answer", [None, 0, SILENT])
@in_loop
async def test_if_the_trainers_of_one_member_count_no_steps_all_continue(answer: int | None) -> None:
    nodes = await training(lambda rank: 7 if rank else answer, within=0.3)
    assert not await nodes[0].gang.resize_at_step("the job grows")
    for node in nodes:
        await until(lambda: steps(node) == [0])  # noqa: B023
    assert not await nodes[0].gang.resize_at_step("the job grows"), "the members are asked once"
    await end(nodes)


@in_loop
async def test_after_sigterm_to_a_member_all_trainers_save_first() -> None:
    nodes = await training(lambda rank: 7)
    nodes[1].gang.report_failed(STOPPED, time.monotonic())
    for node in nodes:
        await until(lambda: steps(node) == [9])  # noqa: B023
    assert not any(node.has(Stop) for node in nodes)
    for node in nodes:
        node.gang.report_trained()
    for node in nodes:
        await until(lambda: node.has(Stop))  # noqa: B023
        (stop,) = (event for event in node.events if isinstance(event, Stop))
        assert stop.cause == STOPPED
    await end(nodes)


@in_loop
async def test_a_trainer_that_does_not_end_after_sigterm_is_waited_for_half_of_the_grace_period() -> None:
    nodes = await training(lambda rank: 7, grace=0.6)
    nodes[1].gang.report_failed(STOPPED, time.monotonic())
    for node in nodes:
        await until(lambda: node.has(Stop))  # noqa: B023
    await end(nodes)


@in_loop
async def test_without_steps_sigterm_stops_the_gang_at_once() -> None:
    nodes = await training(lambda rank: None, grace=1000.0)
    nodes[1].gang.report_failed(STOPPED, time.monotonic())
    for node in nodes:
        await until(lambda: node.has(Stop))  # noqa: B023
    await end(nodes)
