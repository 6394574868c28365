"""Which launcher leads the gang of an elastic job, and when one that leads must follow another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import JoinFailed
from launcher.model import PSERVER, Cause, CauseKind, Member, Peers, Roster
from launcher.run import leader
from launcher.run.leader import Before, Leader, NotYet
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from tests.support.members import in_loop

T = TypeVar("T")

A, B, C, D = (f"10.0.0.{number}" for number in range(4))
LONG = 1000.0
UNREACHABLE = JoinFailed("it cannot be reached", answers=False)
NOT_THE_HUB = JoinFailed("it is not the hub", leads=False)
REFUSES = JoinFailed("it has left")


async def volume(work: Callable[[], T]) -> T:
    return work()


class Place:
    """One member, and the volume of its job."""

    def __init__(self, folder: Path) -> None:
        self.output = str(folder)
        self.leases = LeaseFiles(self.output)

    def leader(self, before: Before | None = None, settle: float = 0.0) -> Leader:
        made = Leader(self.output, volume, settle, before)  # type: ignore[arg-type]  # it only runs functions
        made.identity = "job-1"
        return made

    def lease(self, address: str, job: str = "job-1") -> None:
        """Let the hub at this address take the lease."""
        latest = self.leases.latest()
        number = 0 if latest is None else latest.number + 1
        assert self.leases.take(number, LeaseOwner(f"gang-{number}", job, "pod", "", 100.0, address))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def peers(own: str, *lower: str, rank: int | None = 9, role: str = "both") -> Peers:
    return Peers(Member("pod", "uid", own, own, rank, role), lower[0] if lower else None, "job-1", rank, lower)


async def choose(made: Leader, found: Peers, *, all_are_here: bool = False) -> str | None:
    return await made.choose(found, all_are_here=all_are_here)


def before(gone: int | None, kind: CauseKind = CauseKind.LOST) -> Before:
    """Return a gang with the hub A and the members B and C, and which of them is gone."""
    roster = Roster(tuple(Member(each, "", each, each, rank) for rank, each in enumerate((A, B, C))))
    return Before.of(roster, Cause(kind, gone, "pod", "what", Exit.PEER_LOST))


@in_loop
async def test_the_first_member_that_is_there_leads(place: Place) -> None:
    made = place.leader()
    assert await choose(made, peers(A, rank=0)) is None
    assert await choose(made, peers(C, A, B)) == A
    made.failed(A, UNREACHABLE)
    assert await choose(made, peers(C, A, B)) == B
    made.failed(B, UNREACHABLE)
    assert await choose(made, peers(C, A, B)) is None


@in_loop
async def test_a_launcher_that_answers_is_not_passed_over_since_it_may_be_about_to_lead(place: Place) -> None:
    made = place.leader()
    made.failed(A, NOT_THE_HUB)
    assert await choose(made, peers(C, A, B)) == A


@in_loop
async def test_at_the_start_of_a_job_those_that_come_first_have_a_while_to_come(place: Place) -> None:
    made = place.leader(settle=LONG)
    with pytest.raises(NotYet):
        await choose(made, peers(B, rank=1))
    made.failed(A, UNREACHABLE)
    assert await choose(made, peers(B, A, rank=1)) == A
    assert await choose(made, peers(B, rank=None), all_are_here=True) is None
    assert await choose(made, peers(A, rank=0)) is None


@in_loop
async def test_a_pserver_never_leads(place: Place) -> None:
    with pytest.raises(NotYet):
        await choose(place.leader(), peers(C, role=PSERVER))


@in_loop
async def test_the_hub_that_holds_the_lease_leads_unless_it_does_not_answer(place: Place) -> None:
    place.lease(C)
    made = place.leader()
    assert await choose(made, peers(A, rank=0)) == C
    made.failed(C, UNREACHABLE)
    assert await choose(made, peers(A, rank=0)) is None


@pytest.mark.parametrize("what", ["released", "of another job", "my own", "without an address"])
@in_loop
async def test_a_lease_does_not_count_if_it_is(what: str, place: Place) -> None:
    place.lease({"my own": A, "without an address": ""}.get(what, C), "job-2" if what == "of another job" else "job-1")
    if what == "released":
        place.leases.release("gang-0", 1.0)
    assert await choose(place.leader(), peers(A, rank=0)) is None


@in_loop
async def test_the_lease_of_a_job_with_roles_names_the_identities_of_both(place: Place) -> None:
    place.lease(C, "job-1+job-2")
    assert await choose(place.leader(), peers(A, rank=0)) == C


@in_loop
async def test_the_hub_before_stays_the_hub_if_it_is_not_gone(place: Place) -> None:
    assert await choose(place.leader(before(2)), peers(A, rank=3)) is None
    assert await choose(place.leader(before(2)), peers(B, D, rank=3)) == A
    made = place.leader(before(0))
    assert await choose(made, peers(B, A)) is None
    assert await choose(made, peers(C, A, B)) == B


@in_loop
async def test_members_that_a_hub_sends_away_look_again_for_the_first_one(place: Place) -> None:
    made = place.leader(before(0))
    assert await choose(made, peers(C, A, B)) == B
    made.failed(B, REFUSES)
    assert await choose(made, peers(C, A, B)) == A
    made = place.leader(before(0, CauseKind.STOPPED))
    made.failed(B, REFUSES)
    assert await choose(made, peers(C, A, B)) == B, "the other one ends"


@in_loop
async def test_a_member_that_has_waited_for_the_job_to_grow_follows_the_same_hub(place: Place) -> None:
    place.lease(C)
    made = place.leader()
    assert await choose(made, peers(A, rank=0)) == C
    place.leases.release("gang-0", 1.0)
    made.failed(C, REFUSES)
    assert await choose(made, peers(A, rank=0)) == C


class Watch:
    """A launcher that leads, and what it sees."""

    def __init__(self, made: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leader, "_WATCH_AFTER", 0.0)
        monkeypatch.setattr(leader, "_WATCH_EVERY", 0.01)
        self.made = made
        self.answering: set[str] = set()
        self.joined: set[str] = set()
        self.is_complete = False
        self.task = asyncio.ensure_future(
            made.watch(C, self._find, self._reaches, lambda: self.joined, self._completes())
        )

    def _completes(self) -> Callable[[], Awaitable[bool]]:
        async def ask() -> bool:
            return self.is_complete

        return ask

    async def _find(self) -> Peers:
        return peers(C, A, B)

    async def _reaches(self, address: str) -> bool:
        return address in self.answering

    async def ends(self, why: str) -> None:
        with pytest.raises(JoinFailed, match=why):
            await asyncio.wait_for(self.task, 5)

    async def continues(self) -> None:
        await asyncio.wait([self.task], timeout=0.1)
        assert not self.task.done()


@in_loop
async def test_a_launcher_that_leads_follows_one_that_comes_first_and_answers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(place.leader(before(0)), monkeypatch)
    await watch.continues()
    watch.answering = {A}
    await watch.ends("comes first")
    assert await choose(watch.made, peers(C, A, B)) == A


@in_loop
async def test_a_launcher_that_has_joined_or_ends_need_not_be_followed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(place.leader(before(0, CauseKind.STOPPED)), monkeypatch)
    watch.answering, watch.joined = {A, B}, {B}
    await watch.continues()
    watch.joined = set()
    await watch.ends("10.0.0.1 comes first")


@in_loop
async def test_a_launcher_that_leads_follows_the_gang_that_has_the_lease(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(place.leader(), monkeypatch)
    place.lease(D)
    await watch.ends("runs already: its hub is at 10.0.0.3")


@in_loop
async def test_a_launcher_that_leads_leaves_when_the_job_is_complete(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(place.leader(), monkeypatch)
    watch.is_complete = True
    await watch.ends("has completed the job")


@in_loop
async def test_a_volume_that_does_not_answer_hides_the_lease_and_ends_no_launcher(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place.leader()

    async def stalled(work: object) -> object:
        raise Failure(Exit.IO_FAILED, "the volume does not answer")

    monkeypatch.setattr(made, "_volume", stalled)
    assert await choose(made, peers(B, A)) == A
    watch = Watch(made, monkeypatch)
    await watch.continues()
    watch.answering = {A}
    await watch.ends("comes first")
