"""How a member finds its peers, joins, and copies its files."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from launcher import config
from launcher.config import JobConfig
from launcher.discovery.finder import FinderSettings, SingleFinder
from launcher.errors import Exit, Failure
from launcher.gang import Gang, GangSettings, JoinFailed, Verdict
from launcher.gang.events import MissingMembers
from launcher.model import FIRST, Cause, Member, Peers, Roster, Start
from launcher.run import join
from launcher.run.factories import Factories
from launcher.run.join import Joined, Joining
from launcher.store.record import Record
from tests.support.members import in_loop, until
from tests.support.sessions import IDENTITY, FakeFinder, FakeGang, FakeStaging, job_config, settle


class Parts:
    """One member that joins a fake gang, and everything that it makes."""

    def __init__(
        self,
        job: JobConfig,
        *,
        rejoin: bool = False,
        finder: Callable[[FinderSettings], FakeFinder] = FakeFinder,
    ) -> None:
        self._make_finder = finder
        self.gang = FakeGang(GangSettings(job.members, 0), lambda event: None)
        self.staging = FakeStaging()
        self.finders: list[FakeFinder] = []
        self.copies: list[Any] = []
        factories = Factories(finder=self._finder, staging=cast(Any, self._staging))
        self.joining = Joining(job, cast(Gang, self.gang), rejoin=rejoin, factories=factories)

    def _finder(self, settings: FinderSettings) -> FakeFinder:
        self.finders.append(self._make_finder(settings))
        return self.finders[-1]

    def _staging(self, copies: Any, *_: object) -> FakeStaging:
        self.copies.append(copies)
        return self.staging


def opened(job: JobConfig) -> Record:
    record = Record(job.output, IDENTITY)
    record.open()
    return record


def fail_without_progress(job: JobConfig, attempts: int) -> Path:
    """Record that so many attempts in a row have failed. Return the file."""
    path = Path(opened(job).attempts_file)
    path.write_text(json.dumps({"without_progress": attempts, "generations": []}))
    return path


# ---- the join --------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_join_returns_the_complete_gang_and_its_record(tmp_path: Path) -> None:
    job = job_config(tmp_path)
    joined = await Parts(job).joining.join()
    assert isinstance(joined, Joined)
    assert (joined.rank, joined.gang, joined.record.identity) == (1, "gang-1", IDENTITY)
    assert [member.pod for member in joined.roster.members] == ["pod-0", "pod-1"]


@in_loop
async def test_a_member_joins_with_its_role_and_the_secret_of_the_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_config(tmp_path, LAUNCHER_TRAINERS_PER_NODE="3")
    parts = Parts(job)
    asked: list[tuple[Member, object, str, bytes | None]] = []
    asks = parts.gang.join

    async def spy(me: Member, hub: object, *, job: str, secret: bytes | None) -> tuple[Roster, int]:
        asked.append((me, hub, job, secret))
        return await asks(me, hub, job=job, secret=secret)

    monkeypatch.setattr(parts.gang, "join", spy)
    await parts.joining.join()
    ((me, hub, identity, secret),) = asked
    assert (me.role, me.trainers, hub, identity) == ("both", 3, ("127.0.0.1", job.gang.port), IDENTITY)
    assert secret == Record(job.output, IDENTITY).secret()


@in_loop
async def test_a_job_that_is_complete_is_not_joined(tmp_path: Path) -> None:
    job = job_config(tmp_path)
    opened(job).mark_complete()
    parts = Parts(job)
    parts.gang.may_join.clear()
    assert await asyncio.wait_for(parts.joining.join(), 8) is None


@in_loop
async def test_a_job_that_is_given_up_is_not_joined(tmp_path: Path) -> None:
    job = job_config(tmp_path)
    attempts = fail_without_progress(job, 5)
    with pytest.raises(Failure, match="given up: 5 attempts in a row") as failed:
        await Parts(job).joining.join()
    assert failed.value.code == Exit.GIVEN_UP
    assert str(attempts) in failed.value.message


@in_loop
async def test_the_completion_of_an_earlier_job_is_logged_and_does_not_end_this_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_config(tmp_path)
    earlier = Record(job.output, "job-0")
    earlier.open()
    earlier.mark_complete()
    assert await Parts(job).joining.join() is not None
    assert "an earlier job of this name was complete (job-0): this is a new job" in caplog.text


@in_loop
async def test_after_a_refusal_the_peers_are_found_again_and_the_same_reason_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts(job_config(tmp_path))
    reasons = ["not the hub", "not the hub", "no answer"]
    found: list[object] = []
    asks, finds = parts.gang.join, parts.finders[0].find

    async def refuse(*args: Any, **more: Any) -> tuple[Roster, int]:
        if reasons:
            raise JoinFailed(reasons.pop(0))
        return await asks(*args, **more)

    async def find() -> Peers:
        found.append(None)
        return await finds()

    monkeypatch.setattr(parts.gang, "join", refuse)
    monkeypatch.setattr(parts.finders[0], "find", find)
    assert await parts.joining.join() is not None
    assert len(found) == 4
    assert caplog.text.count("looking for peers again: not the hub") == 1
    assert caplog.text.count("looking for peers again: no answer") == 1


@pytest.mark.parametrize("rejoin", [False, True])
@in_loop
async def test_a_join_that_takes_too_long_names_the_variable_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rejoin: bool
) -> None:
    monkeypatch.setattr(join, "_HUB_FIRST", 0.0)
    variable = "LAUNCHER_REJOIN_TIMEOUT" if rejoin else "LAUNCHER_PEER_TIMEOUT"
    variables: dict[str, Any] = {variable: "0.05"}
    parts = Parts(job_config(tmp_path, **variables), rejoin=rejoin)
    parts.gang.may_join.clear()
    with pytest.raises(Failure, match="the hub has not been reached") as failed:
        await asyncio.wait_for(parts.joining.join(), 8)
    assert failed.value.code == Exit.TIMED_OUT
    assert failed.value.message.startswith(f"waited 0.05 s ({variable}) for the gang: ")


@in_loop
async def test_a_member_whose_hub_has_left_names_the_missing_members_at_its_own_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's time is over a moment before the time of the other members."""
    parts = Parts(job_config(tmp_path, size=3))
    finds = [parts.finders[0].find]

    async def refuse(*args: Any, **more: Any) -> tuple[Roster, int]:
        raise JoinFailed("the hub has left")

    async def find() -> Peers:
        if finds:
            return await finds.pop()()
        raise Failure(Exit.TIMED_OUT, "waited 600 s for peers: the API server has not answered yet")

    monkeypatch.setattr(parts.gang, "join", refuse)
    monkeypatch.setattr(parts.gang, "missing", lambda: MissingMembers(2, 3, (2,)))
    monkeypatch.setattr(parts.finders[0], "find", find)
    with pytest.raises(Failure, match=r"for the gang: 2 of 3 have joined \(missing: rank 2\)") as failed:
        await parts.joining.join()
    assert failed.value.code == Exit.TIMED_OUT


@in_loop
async def test_a_volume_that_is_not_mounted_fails_the_join(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="expected the mount point of the shared volume") as failed:
        await Parts(job_config(tmp_path / "missing")).joining.join()
    assert failed.value.code == Exit.NO_INPUT


@in_loop
async def test_a_volume_that_does_not_answer_correctly_is_no_missing_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new start of the pod may help, but the code for a missing mount would end the job for good."""
    really_stat = os.stat
    answers = [errno.EIO, errno.ESTALE]

    def stat(path: Any, **more: Any) -> os.stat_result:
        if path == str(tmp_path) and answers:
            raise OSError(answers.pop(0), "a fault of the volume")
        return really_stat(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(Failure) as failed:
        await Parts(job_config(tmp_path)).joining.join()
    assert failed.value.code == Exit.IO_FAILED
    assert "Input/output error: check the volume" in failed.value.message
    assert await Parts(job_config(tmp_path)).joining.join(), "a stale file handle is looked up again"


@in_loop
async def test_the_search_for_peers_goes_on_until_it_is_ended(tmp_path: Path) -> None:
    parts = Parts(job_config(tmp_path))
    await parts.joining.join()
    assert not parts.finders[0].closed
    await parts.joining.end_discovery()
    assert parts.finders[0].closed


@in_loop
async def test_an_answer_of_kubernetes_that_fails_or_takes_too_long_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(job_config(tmp_path))
    parts.finders[0].answer = "OOMKilled"
    assert await parts.joining.ask_about("pod-0") == "OOMKilled"

    async def fail(pod: str) -> str:
        raise Failure(Exit.DENIED, "forbidden")

    async def hang(pod: str) -> str:
        await asyncio.Event().wait()
        return "OOMKilled"

    monkeypatch.setattr(parts.finders[0], "describe_peer", fail)
    assert await parts.joining.ask_about("pod-0") == ""
    monkeypatch.setattr(join, "_ASK_WITHIN", 0.0)
    monkeypatch.setattr(parts.finders[0], "describe_peer", hang)
    assert await asyncio.wait_for(parts.joining.ask_about("pod-0"), 8) == ""


# ---- the copy --------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_member_with_a_known_rank_copies_its_shard_while_it_looks_for_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(job_config(tmp_path))

    async def find() -> Peers:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(parts.finders[0], "find", find)
    joining = asyncio.ensure_future(parts.joining.join())
    await asyncio.wait_for(parts.joining.stage(lambda: None), 8)
    assert not joining.done()
    assert [copy.what for copy in parts.copies[0]] == ["shard of rank 1"]
    joining.cancel()


class WithoutNumbers(FakeFinder):
    """A finder of pods without numbers: only the hub knows the ranks."""

    async def find(self) -> Peers:
        return Peers(self._own_member(1), "127.0.0.1", IDENTITY, None)


@in_loop
async def test_a_member_without_a_number_copies_its_shard_after_the_hub_has_named_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(job_config(tmp_path, rank=None), finder=WithoutNumbers)
    parts.gang.may_join.clear()
    asked = asyncio.Event()
    asks = parts.gang.join

    async def spy(*args: Any, **more: Any) -> tuple[Roster, int]:
        asked.set()
        return await asks(*args, **more)

    monkeypatch.setattr(parts.gang, "join", spy)
    joining = asyncio.ensure_future(parts.joining.join())
    staging = asyncio.ensure_future(parts.joining.stage(lambda: None))
    await asyncio.wait_for(asked.wait(), 8)
    await settle()
    assert parts.copies == []
    parts.gang.may_join.set()
    await asyncio.wait_for(asyncio.gather(joining, staging), 8)
    assert [copy.what for copy in parts.copies[0]] == ["shard of rank 1"]


# ---- two roles -------------------------------------------------------------------------------------------------------


class OfARole(SingleFinder):
    """A finder of a member that knows the controller of its own role and the address of the hub."""

    async def identity(self) -> str:
        return f"{self._settings.role}-uid"

    async def find(self) -> Peers:
        rank = self._settings.shape.rank(self._settings.role, 0)
        return Peers(self._own_member(rank, "127.0.0.1"), "127.0.0.1" if rank else None, "own-uid", rank)


def test_two_roles_agree_on_one_identity_and_each_finds_the_mark_of_completion_by_its_own(tmp_path: Path) -> None:
    async def start(role: str, hub_port: int) -> tuple[Joining, Gang, asyncio.Future[Joined | None]]:
        given = {
            "LAUNCHER_ROLE": role,
            "LAUNCHER_PSERVERS": "1",
            "LAUNCHER_SELECTOR": "app=x",
            "CONF_PADDLE_GRADIENT_NUM": "1",
            "LAUNCHER_WORKDIR": str(tmp_path),
            "LAUNCHER_GANG_PORT": str(hub_port or 7168),
        }
        settings = GangSettings(2, 0, ("127.0.0.1",), pservers=1)
        gang = Gang(settings, lambda event: None, complete=nothing, judge=as_it_is, prepare=at_once)
        told = config.read(given, {}, check_here=False)
        joining = Joining(told, gang, factories=Factories(finder=OfARole))
        joined = asyncio.ensure_future(joining.join())
        await until(lambda: gang.port, "it listens")
        return joining, gang, joined

    async def both() -> list[Joined | None]:
        trainer = await start("trainer", 0)
        members = [trainer, await start("pserver", trainer[1].port)]
        found = [await asyncio.wait_for(joined, 10) for _, _, joined in members]
        for joining, gang, _ in members:
            await joining.end()
            await gang.close()
        return found

    async def test() -> None:
        records = [joined.record for joined in await both() if joined]
        folder = tmp_path / "output" / ".launcher" / "trainer-uid+pserver-uid"
        assert [record.attempts_file for record in records] == [str(folder / "attempts.json")] * 2
        records[0].mark_complete()
        assert await both() == [None, None]

    asyncio.run(test())


async def nothing() -> None:
    """There is no mark to write."""


def as_it_is(cause: Cause) -> tuple[Cause, Verdict]:
    return cause, Verdict.STOP


async def at_once(cause: Cause | None) -> Start:
    return FIRST
