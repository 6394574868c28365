"""Gangs whose size may change: how they begin, which ranks their members keep, and how they grow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from launcher.errors import Exit
from launcher.gang import Elastic, JoinFailed, OtherGang, Stop, Verdict, handshake
from launcher.gang.seats import Seat
from launcher.model import Cause, CauseKind, Start
from tests.support.members import Node, in_loop, settings, until
from tests.support.wire import Wire

LONG = 1000.0
GROWS = Cause(CauseKind.RESIZED, None, "pod-0", "the job grows", Exit.PEER_LOST)


def nodes(ranks: Sequence[int], elastic: Elastic) -> list[Node]:
    """Return a hub and members with these numbers, of a gang of at most four."""
    config = settings(4, elastic=elastic, rejoins=True)
    judge = lambda cause: (cause, Verdict.REJOIN)  # noqa: E731
    return [Node(rank, config, uid=f"uid-{rank}", judge=judge) for rank in ranks]


async def gather(hub: Node, *others: Node) -> None:
    await hub.gang.listen()
    for other in others:
        await other.gang.listen()
    await asyncio.wait_for(asyncio.gather(hub.join(None), *(other.join(hub.place) for other in others)), 8)


async def end(*members: Node) -> None:
    await asyncio.gather(*(member.gang.close() for member in members))


@in_loop
async def test_a_gang_begins_with_those_that_are_there_once_none_has_joined_for_a_while() -> None:
    members = nodes([0, 2], Elastic(2, 0.2))
    await gather(*members)
    assert [member.rank for member in members] == [0, 1], "ranks have no gaps"
    await end(*members)


@in_loop
async def test_below_the_least_a_gang_never_begins() -> None:
    (hub,) = nodes([0], Elastic(2, 0.05))
    await hub.gang.listen()
    joining = asyncio.ensure_future(hub.join(None))
    await until(lambda: hub.gang._hub is not None and hub.gang._hub._roll_call._has_settled)
    assert not joining.done()
    joining.cancel()
    await end(hub)


@in_loop
async def test_a_gang_begins_at_once_with_all_that_it_may_have_or_with_all_that_should_return() -> None:
    for members in (nodes([0, 1, 2, 3], Elastic(1, LONG)), nodes([0, 1, 2], Elastic(1, LONG, returning=3))):
        await gather(*members)
        await end(*members)


@in_loop
async def test_members_keep_their_ranks_if_the_gang_has_them() -> None:
    ranks = {"uid-0": 0, "uid-2": 1, "uid-3": 2, "uid-1": 3}
    members = nodes([0, 1, 2], Elastic(1, LONG, returning=3, ranks=ranks))
    await gather(*members)
    assert [member.rank for member in members] == [0, 2, 1]
    await end(*members)


@in_loop
async def test_a_member_that_comes_later_waits_until_the_gang_grows() -> None:
    *members, late, later, much_later = nodes([0, 1, 2, 3, 1], Elastic(2, 0.1))
    hub = members[0]
    await gather(*members)
    joining = [asyncio.ensure_future(each.join(hub.place)) for each in (late, later)]
    await until(lambda: hub.gang.newcomers() == 2)
    await until(lambda: (missing := late.gang.missing()) is not None and missing.runs)
    with pytest.raises(JoinFailed, match="runs without pod"):
        await much_later.join(hub.place)  # its number belongs to a member
    assert hub.gang.returning(GROWS, without_lost=False) == 4
    hub.gang.resize("the job grows")
    for member in members:
        await until(lambda: member.has(Stop))  # noqa: B023
        (stop,) = (event for event in member.events if isinstance(event, Stop))
        assert (stop.cause.kind, stop.rejoin) == (CauseKind.RESIZED, True)
    await end(*members)
    for each in joining:
        with pytest.raises(JoinFailed, match="the next one takes new members"):
            await each
    await end(late, later, much_later)


@in_loop
async def test_a_hub_whose_gang_ends_is_asked_again_for_the_next_gang() -> None:
    """A member that has left the gang before the others may find its hub before the hub has left."""
    hub, member = nodes([0, 1], Elastic(2, LONG, returning=2))
    await gather(hub, member)
    hub.gang.resize("the job grows")
    await until(lambda: member.has(Stop))
    wire = await Wire.connect(hub.place)
    await wire.join(1, 4)
    _, retry = handshake.read_refusal(await wire.receive())
    assert retry, "else the member looks for another hub, and misses the next gang"
    await wire.until_dropped()
    await end(hub, member)


@in_loop
async def test_a_member_that_gives_up_does_not_wait_any_more() -> None:
    *members, late = nodes([0, 1, 2], Elastic(2, 0.1))
    hub = members[0]
    await gather(*members)
    joining = asyncio.ensure_future(late.join(hub.place))
    await until(lambda: hub.gang.newcomers() == 1)
    joining.cancel()
    await until(lambda: hub.gang.newcomers() == 0)
    assert hub.gang.returning(GROWS, without_lost=False) == 2
    await end(*members, late)


@in_loop
async def test_a_gang_of_fixed_size_takes_no_newcomers() -> None:
    config = settings(2)
    hub, member, late = (Node(rank, config, uid=f"uid-{rank}") for rank in (0, 1, 1))
    await gather(hub, member)
    with pytest.raises(JoinFailed, match="runs without pod"):
        await late.join(hub.place)
    await end(hub, member, late)


@in_loop
async def test_any_member_may_be_the_hub_and_has_rank_0() -> None:
    hub, first, last = nodes([1, 0, 2], Elastic(2, LONG, returning=3, ranks={"uid-0": 0, "uid-2": 2}))
    await gather(hub, first, last)
    assert [member.rank for member in (hub, first, last)] == [0, 1, 2]
    await end(hub, first, last)


@in_loop
async def test_a_member_without_a_number_may_lead_although_another_one_has_a_lower_address() -> None:
    hub, lower = nodes([1, 0], Elastic(2, 0.3))
    for node in (hub, lower):
        node.me = replace(node.me, rank=None)
    await gather(hub, lower)
    assert [member.rank for member in (hub, lower)] == [0, 1]
    await end(hub, lower)


@in_loop
async def test_only_the_hub_knows_how_many_members_return_and_others_assume_all_but_the_one_at_fault() -> None:
    hub, member, _ = members = nodes([0, 1, 2], Elastic(2, LONG, returning=3))
    await gather(*members)
    stopped = replace(GROWS, kind=CauseKind.STOPPED, rank=0)
    lost = replace(stopped, kind=CauseKind.LOST)
    assert [member.gang.returning(cause, without_lost=False) for cause in (GROWS, stopped, lost)] == [3, 2, 3]
    assert member.gang.returning(lost, without_lost=True) == 2
    assert hub.gang.joined_addresses() == [each.me.address for each in members]
    await end(*members)


@in_loop
async def test_a_gang_stops_and_joins_the_other_gang_of_its_job_that_trains_already() -> None:
    def prepare(cause: Cause | None) -> Start:
        raise OtherGang("the gang of pod x trains already")

    config = settings(2, elastic=Elastic(1, LONG), rejoins=True)
    members = [Node(rank, config, uid=f"uid-{rank}", prepare=prepare) for rank in (0, 1)]
    await gather(*members)
    for member in members:
        await until(lambda: member.has(Stop))  # noqa: B023
        (stop,) = (event for event in member.events if isinstance(event, Stop))
        assert (stop.cause.kind, stop.rejoin) == (CauseKind.RESIZED, True)
    await end(*members)


@in_loop
async def test_a_launcher_is_reached_once_it_has_the_secret() -> None:
    hub, other = nodes([0, 1], Elastic(1, LONG))
    await hub.gang.listen()
    joining = asyncio.ensure_future(hub.join(None))
    await until(lambda: hub.gang._hub is not None)
    assert not await hub.gang.reaches("127.0.0.99")
    await other.gang.listen()
    assert not await other.gang.reaches(hub.me.address), "it has no secret yet"
    joining.cancel()
    await end(hub, other)


@in_loop
async def test_the_hub_knows_the_rank_of_a_member_that_reports_an_earlier_one() -> None:
    members = nodes([0, 1, 3], Elastic(2, LONG, returning=3))
    await gather(*members)
    stopped = replace(GROWS, kind=CauseKind.STOPPED, rank=3)
    members[2].gang.report_failed(stopped, time.monotonic())
    await until(lambda: members[0].has(Stop))
    (stop,) = (event for event in members[0].events if isinstance(event, Stop))
    assert stop.cause.rank == 2
    await end(*members)


@in_loop
async def test_a_hub_that_was_told_to_stop_waits_for_a_member_that_reconnects_while_its_processes_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = nodes([0, 1, 2], Elastic(2, LONG, returning=3))
    await gather(*members)
    hub, member, other = members
    hub.gang.report_failed(replace(GROWS, kind=CauseKind.STOPPED, rank=0), time.monotonic())
    for each in members:
        await until(lambda: each.has(Stop))  # noqa: B023
    for each in (hub, other):
        each.gang.report_stopped()
    assert hub.gang._hub is not None
    seats, ending = hub.gang._hub._seats, hub.gang._hub.ending
    await until(lambda: seats[2].stopped)
    ended = asyncio.ensure_future(hub.gang.wait_others_ended())
    seen, after_leaving = [], ending.after_leaving

    def look(seat: Seat) -> None:
        after_leaving(seat)
        seen.append((seat.rank, seat.connection, hub.gang.remaining_run_time() > 0))

    monkeypatch.setattr(ending, "after_leaving", look)
    before = seats[1].connection
    assert before is not None
    before.abort("")
    await until(lambda: seen and seats[1].connection is not None)
    assert seen == [(1, None, True)]
    assert not ended.done()
    member.gang.report_stopped()
    await asyncio.wait_for(ended, 8)
    assert hub.gang.remaining_run_time() == 0
    await end(*members)
