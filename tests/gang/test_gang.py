"""A gang fails together with the first cause named, ends together, and is complete only once."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import Begin, Finish, HubLost, NotComplete, Restart, Stop, Train, Verdict
from launcher.gang.connection import Connection, close_gracefully
from launcher.gang.protocol import encode
from launcher.model import FIRST, Cause, CauseKind
from tests.support.members import (
    Scene,
    cut_gang,
    died,
    in_loop,
    settings,
    stopped_once_by,
    until,
)

LONG = 1000.0

# ---- completion ------------------------------------------------------------------------------------------------------


@in_loop
async def test_finish_comes_after_the_mark_of_completion() -> None:
    async with Scene() as scene:
        marked = asyncio.Event()
        nodes = await scene.training(2, settings(2, reports_within=0.01), complete=marked.wait)
        for node in nodes:
            node.gang.report_trained()
        await until(lambda: nodes[0].completions)
        nodes[0].gang.report_failed(died("pserver", 0, 137), time.monotonic() - 1)
        await asyncio.sleep(0.05)
        assert not any(node.has(Finish) or node.has(Stop) for node in nodes)
        marked.set()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop), "what is complete cannot fail any more"


async def _stalled() -> None:
    await asyncio.Event().wait()


async def _broken() -> None:
    raise OSError(5, "Input/output error")


async def _full() -> None:
    raise Failure(Exit.CANNOT_WRITE, "cannot write /volume/complete: No space left on device")


@pytest.mark.parametrize(
    ("complete", "why", "code"),
    [
        (_stalled, "the volume has not answered for 0.1 s", Exit.IO_FAILED),
        (_broken, "OSError(5, 'Input/output error')", Exit.IO_FAILED),
        (_full, "cannot write /volume/complete: No space left on device", Exit.CANNOT_WRITE),
    ],
)
@in_loop
async def test_a_job_whose_mark_cannot_be_written_is_not_complete(
    complete: Callable[[], Awaitable[None]], why: str, code: Exit
) -> None:
    """Training again would not help, so it stops the gang even if restarts are allowed."""
    what = f"all members have trained, but the mark of completion is missing: {why}"
    async with Scene() as scene:
        config = settings(2, complete_within=0.1)
        nodes = await scene.training(2, config, complete=complete, judge=lambda cause: (cause, Verdict.RESTART))
        for node in nodes:
            node.gang.report_trained()
        await stopped_once_by(nodes, died("volume", 0, code, what))
        nodes[0].gang.report_stopped()
        for node in nodes:
            await node.hears(Finish())


NOT_WHOLE = died("volume", 0, Exit.CANNOT_WRITE, "pass 2 is not whole")


@in_loop
async def test_if_the_last_pass_is_not_whole_all_members_train_again() -> None:
    refusals = [NOT_WHOLE]

    async def complete() -> None:
        if refusals:
            raise NotComplete(refusals.pop())

    async with Scene() as scene:
        config = settings(2, reports_within=0.01)
        nodes = await scene.training(2, config, complete=complete, judge=lambda cause: (cause, Verdict.RESTART))
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Restart(1, NOT_WHOLE))
            node.ended()
        for node in nodes:
            await node.hears(Begin(1, FIRST))
            node.serving()
        await until(lambda: all(node.events.count(Train()) == 2 for node in nodes))
        assert not nodes[0].has(Finish)
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
        assert nodes[0].completions == 2


@in_loop
async def test_without_restarts_a_last_pass_that_is_not_whole_ends_the_job() -> None:
    async def complete() -> None:
        raise NotComplete(NOT_WHOLE)

    async with Scene() as scene:
        nodes = await scene.training(2, settings(2, reports_within=0.01), complete=complete)
        for node in nodes:
            node.trained()
        await stopped_once_by(nodes, NOT_WHOLE)


@in_loop
async def test_finish_arrives_though_the_hub_closes_at_once() -> None:
    async with Scene() as scene:
        hub = scene.process(0, 3, None, trained=True, until="Finish")
        place = ("127.0.0.1", await hub.line())
        members = [await scene.node(rank, settings(3)) for rank in (1, 2)]
        await asyncio.gather(*(member.join(place) for member in members))
        for member in members:
            member.ready()
            member.gang.report_trained()
        assert await hub.code() == 0
        for member in members:
            await member.hears(Finish())
            assert not member.has(HubLost)


# ---- the first cause -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1, 2])
@in_loop
async def test_a_killed_pserver_is_named_and_not_the_processes_that_die_because_of_it(culprit: int) -> None:
    """All 20 runs succeed. Rank 0, the hub, is at fault, is a victim, or gets the report last."""
    dice = random.Random(culprit)
    victims = [rank for rank in range(3) if rank != culprit]

    async def one_run(scene: Scene) -> None:
        # A loaded machine delays reports: so they are collected until all have arrived, and their way takes no time.
        nodes = await scene.training(3, settings(3, reports_within=LONG, verdict_within=LONG))
        right = died("pserver", culprit, 137, "killed")
        deaths = [(0.0, culprit, right)]
        # All trainers die of it; the other pservers usually die, too.
        deaths += [
            (dice.uniform(0.002, 0.25), rank, died("trainer", rank, dice.choice((134, 139)))) for rank in range(3)
        ]
        deaths += [(dice.uniform(0.01, 0.25), rank, died("pserver", rank, dice.choice((134, 141)))) for rank in victims]
        if culprit == 2:
            deaths = [death for death in deaths if death[1] != 0]

        times: dict[Cause, float] = {}

        async def report(death: tuple[float, int, Cause]) -> None:
            after, rank, cause = death
            await asyncio.sleep(after)
            died_at = time.monotonic()
            # A launcher notices a death late, and here it notices the first one later than the others.
            await asyncio.sleep(dice.uniform(0, 0.2) if cause is right else dice.uniform(0, 0.03))
            times[cause] = died_at + dice.uniform(-0.005, 0.005)
            nodes[rank].gang.report_failed(cause, times[cause])

        await asyncio.gather(*map(report, deaths))
        assert nodes[0].gang._hub is not None
        attempts = nodes[0].gang._hub._attempts
        await until(lambda: len(attempts._attempt.reports) == len(deaths), "all reports have arrived")
        attempts._attempt.reports = [(times[cause], cause) for _, cause in attempts._attempt.reports]
        attempts._after_collecting()
        await stopped_once_by(nodes, right)

    async with Scene() as scene:
        await asyncio.gather(*(one_run(scene) for _ in range(20)))


@in_loop
async def test_the_oldest_death_is_named_although_it_is_reported_last() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        now = time.monotonic()
        nodes[0].gang.report_failed(died("trainer", 0, 3), now - 0.1)
        await asyncio.sleep(0.05)
        first = died("trainer", 1, 139)
        nodes[1].gang.report_failed(first, now - 0.3)
        await stopped_once_by(nodes, first)


@in_loop
async def test_the_verdict_is_judged_once_and_never_changes() -> None:
    async with Scene() as scene:
        nodes = await scene.training(
            2, settings(2, reports_within=0.01), judge=lambda cause: (replace(cause, final=True), Verdict.STOP)
        )
        cause = died("trainer", 1, 3)
        nodes[1].gang.report_failed(cause, time.monotonic())
        await stopped_once_by(nodes, replace(cause, final=True))
        for node in nodes:
            node.gang.report_failed(died("pserver", 0, 137), time.monotonic() - 10)
            node.gang.report_trained()
        await asyncio.sleep(0.05)
        await stopped_once_by(nodes, replace(cause, final=True))
        assert nodes[0].judged == [cause]
        assert nodes[0].completions == 0


@in_loop
async def test_a_judge_that_fails_does_not_keep_the_gang_from_stopping(caplog: pytest.LogCaptureFixture) -> None:
    def broken(cause: Cause) -> tuple[Cause, Verdict]:
        raise ZeroDivisionError

    async with Scene() as scene:
        nodes = await scene.training(2, judge=broken)
        cause = died("trainer", 1, 3)
        nodes[1].gang.report_failed(cause, time.monotonic())
        await stopped_once_by(nodes, cause)
        assert any("ZeroDivisionError" in line for line in caplog.messages)


@in_loop
async def test_a_lost_launcher_is_named_and_not_the_trainers_that_died_because_of_it() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3, leave_within=60)) for rank in range(2)]
        lost = scene.process(2, 3, nodes[0].place)
        await lost.line()
        await scene.joined(nodes)
        for node in nodes:
            node.ready()
        for node in nodes:
            await node.hears(Train())
        lost.send(signal.SIGKILL)
        await lost.code()
        for node in nodes:
            node.gang.report_failed(died("trainer", node.rank, 139), time.monotonic())
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 2, "pod-2", Exit.PEER_LOST)
            await node.hears(Finish())


# ---- leaving after a stop --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1])
@in_loop
async def test_all_other_members_leave_after_the_member_at_fault(culprit: int) -> None:
    async with Scene() as scene:
        nodes = await scene.training(3, settings(3, leave_within=60))
        nodes[culprit].gang.report_failed(died("trainer", culprit, 3), time.monotonic())
        for node in nodes:
            await node.told_to_stop()
        for node in nodes:
            if node.rank != culprit:
                node.gang.report_stopped()
        await asyncio.sleep(0.03)
        assert not any(node.has(Finish) for node in nodes)
        nodes[culprit].gang.report_stopped()
        await nodes[culprit].gang.close()
        for node in nodes:
            if node.rank != culprit:
                await node.hears(Finish())


@in_loop
async def test_all_other_members_leave_if_the_member_at_fault_is_lost() -> None:
    async with Scene() as scene:
        nodes = await scene.training(3, settings(3, leave_within=60))
        nodes[1].gang.report_failed(died("trainer", 1, 3), time.monotonic())
        await nodes[2].told_to_stop()
        await nodes[1].gang.close()
        for node in (nodes[0], nodes[2]):
            await node.hears(Finish())


@pytest.mark.parametrize(("kind", "bounded"), [("trainer", True), ("stopped", False)])
@in_loop
async def test_waiting_for_the_member_at_fault_has_a_limit_unless_it_got_sigterm(kind: str, bounded: bool) -> None:
    async with Scene() as scene:
        nodes = await scene.training(2, settings(2, leave_within=0.05, reports_within=0.05))
        nodes[1].gang.report_failed(died(kind, 1, 143), time.monotonic())
        await nodes[0].told_to_stop()
        if bounded:
            await nodes[0].hears(Finish())
        else:
            await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            assert not nodes[0].has(Finish)
            nodes[1].gang.report_stopped()
            await nodes[0].hears(Finish())


@in_loop
async def test_no_member_waits_if_the_failure_is_not_that_of_one_member() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2, settings(2, leave_within=60))
        nodes[1].gang.report_failed(Cause(CauseKind.PEERS, None, "", "too few", 75), time.monotonic())
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_after_a_stop_no_member_reconnects_to_a_hub_that_is_gone() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, leave_within=60)
        nodes[1].gang.report_failed(died("trainer", 0, 3), time.monotonic())
        await nodes[1].told_to_stop()
        relay.cut()
        await nodes[1].hears(Finish())
        assert relay.connections == 1


@in_loop
async def test_a_hub_that_closes_after_its_failure_still_reports_it() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        cause = died("stopped", 0, 143)
        nodes[0].gang.report_failed(cause, time.monotonic())
        await nodes[0].gang.close()
        assert await nodes[1].told_to_stop() == cause
        await nodes[1].hears(Finish())


@in_loop
async def test_a_member_that_closes_after_its_failure_still_reports_it() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        cause = died("stopped", 1, 143)
        nodes[1].gang.report_failed(cause, time.monotonic())
        await nodes[1].gang.close()
        assert await nodes[0].told_to_stop() == cause


@in_loop
async def test_everything_sent_arrives_before_a_connection_is_closed_gracefully() -> None:
    loop = asyncio.get_running_loop()
    heard: list[object] = []
    pair = [
        (
            await loop.create_connection(
                lambda: Connection(lambda _, said: heard.append(said), lambda _: None), sock=end
            )
        )[1]
        for end in socket.socketpair()
    ]
    pair[0].seal_outgoing(b"a key")
    pair[1].seal_incoming(b"a key", proven=True)
    message = {"word": "long", "text": "x" * 4_000_000}
    pair[0].send(encode(message))
    await close_gracefully(pair[:1], 5)
    assert heard == [message]
    await pair[1].ended


@in_loop
async def test_closing_takes_limited_time_although_the_other_members_do_not_answer() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(2)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await scene.joined(nodes, hub=relay.place)
        relay.swallowing = True
        for node in nodes:
            started = time.monotonic()
            await node.gang.close()
            assert time.monotonic() - started < 1.5
