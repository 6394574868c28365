"""One gang at a time trains into an output folder: gangs take the lease, wait for it, and lose it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from launcher.base.aio import LEASE, run_in_thread
from launcher.errors import Exit, Failure
from launcher.model import Cause
from launcher.store.lease import LeaseHolder, OtherGangRuns
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from tests.support.logs import logged
from tests.support.members import in_loop, until
from tests.support.supervising import needs_root, small_volume

T = TypeVar("T")

ONE = LeaseOwner("gang-1", "job", "pod-1", "uid-1", 1.5)
OTHER = LeaseOwner("gang-2", "job", "pod-2", "uid-2", 1.5)
SILENCE = 0.8


class Hub:
    """A hub that acquires the lease of a folder."""

    def __init__(self, leases: LeaseFiles, me: LeaseOwner, patience: float = 30.0) -> None:
        self.lost: list[Cause] = []
        self.lease = LeaseHolder(
            leases,
            silence=SILENCE,
            patience=patience,
            from_volume=self._from_volume,
            lost=self.lost.append,
        )
        self.lease.me = me
        self.acquire = self.lease.acquire

    async def _from_volume(self, work: Callable[[], T]) -> T:
        return await run_in_thread(work)


@pytest.fixture
def leases(tmp_path: Path) -> LeaseFiles:
    return LeaseFiles(str(tmp_path))


@asynccontextmanager
async def waiting(hub: Hub) -> AsyncIterator[asyncio.Task[bool]]:
    with logged() as messages:
        task = asyncio.create_task(hub.acquire())
        await until(lambda: any("pod-1" in line for line in messages), "that it waits for the other")
        try:
            yield task
        finally:
            task.cancel()


@in_loop
async def test_the_second_gang_waits_until_all_of_the_first_has_ended(leases: LeaseFiles) -> None:
    first, second = Hub(leases, ONE), Hub(leases, OTHER)
    assert await first.acquire()
    async with waiting(second) as task:
        await asyncio.sleep(2 * ONE.ends_within)  # the first one renews
        assert not task.done()
        assert not first.lost
        await first.lease.stop_renewing()
        leases.release("gang-1", 0)
        assert await asyncio.wait_for(task, ONE.ends_within / 2)


@in_loop
async def test_of_several_gangs_that_start_together_exactly_one_gets_the_lease(
    leases: LeaseFiles, caplog: pytest.LogCaptureFixture
) -> None:
    hubs = [Hub(leases, replace(ONE, gang=f"gang-{number}", uid=f"uid-{number}")) for number in range(5)]
    tasks = [asyncio.create_task(hub.acquire()) for hub in hubs]
    await until(lambda: len(caplog.messages) == 4, "that the others wait")
    assert sum(task.done() for task in tasks) == 1
    for task in tasks:
        task.cancel()


@in_loop
async def test_a_silent_gang_counts_as_ended_after_the_time_in_which_its_processes_must_have_ended(
    leases: LeaseFiles,
) -> None:
    first, second = Hub(leases, ONE), Hub(leases, OTHER)
    await first.acquire()
    await first.lease.stop_renewing()
    begun = time.monotonic()
    async with waiting(second) as task:
        await task
    assert time.monotonic() - begun >= ONE.ends_within - 0.2


@in_loop
async def test_an_old_lease_is_only_watched_until_it_is_clear_that_it_is_not_renewed(
    leases: LeaseFiles, tmp_path: Path
) -> None:
    leases.take(0, replace(ONE, ends_within=600))
    path = tmp_path / ".launcher/.leases/0"
    os.utime(path, (time.time() - 700, time.time() - 700))
    async with waiting(Hub(leases, OTHER)) as task:
        await asyncio.wait_for(task, 5)


@in_loop
async def test_a_holder_with_a_slow_clock_keeps_its_lease_while_it_renews_it(
    leases: LeaseFiles, tmp_path: Path
) -> None:
    """On this volume, the clocks of the nodes set the times of files."""
    leases.take(0, ONE)
    path = tmp_path / ".launcher/.leases/0"
    async with waiting(Hub(leases, OTHER)) as task:
        for number in range(30):
            os.utime(path, (time.time() - 700 + number,) * 2)
            await asyncio.sleep(0.1)
        assert not task.done()


@in_loop
async def test_a_renewal_from_the_future_is_timed_by_the_waiting_gangs_clock(
    leases: LeaseFiles, tmp_path: Path
) -> None:
    leases.take(0, ONE)
    os.utime(tmp_path / ".launcher/.leases/0", (time.time() + 7000,) * 2)
    async with waiting(Hub(leases, OTHER)) as task:
        await asyncio.wait_for(task, 4 * ONE.ends_within)


@in_loop
async def test_the_next_container_of_the_same_pod_does_not_wait(
    leases: LeaseFiles, caplog: pytest.LogCaptureFixture
) -> None:
    await Hub(leases, ONE).acquire()
    again = Hub(leases, replace(ONE, gang="gang-3"))
    assert await again.acquire()
    assert not caplog.messages


@in_loop
async def test_a_hub_that_finds_a_later_lease_has_lost_its_own(leases: LeaseFiles) -> None:
    first = Hub(leases, ONE)
    await first.acquire()
    leases.take(1, OTHER)
    await until(lambda: first.lost, "that it is lost")
    assert [cause.kind for cause in first.lost] == ["taken over"]
    assert "pod-2" in first.lost[0].what


@in_loop
async def test_a_gang_whose_lease_was_released_by_mistake_ends(leases: LeaseFiles) -> None:
    """A member released the lease after its connection was reset, although its hub still ran."""
    first = Hub(leases, ONE)
    await first.acquire()
    leases.release(ONE.gang, 2)
    await until(lambda: first.lost, "that it is lost")
    assert "a member has lost the connection to this hub" in first.lost[0].what


@in_loop
async def test_a_gang_waits_as_long_as_the_processes_of_the_released_lease_may_run(leases: LeaseFiles) -> None:
    leases.take(0, replace(ONE, ends_within=600))
    leases.release(ONE.gang, 1.0)
    begun = time.monotonic()
    async with waiting(Hub(leases, OTHER)) as task:
        await asyncio.wait_for(task, 10)
    assert time.monotonic() - begun > 0.8


@pytest.mark.parametrize(("by_a_member", "by_the_hub", "ends_within"), [(600.0, 0.0, 0.0), (0.0, 600.0, 0.0)])
def test_of_two_releases_the_shorter_one_counts(
    leases: LeaseFiles, by_a_member: float, by_the_hub: float, ends_within: float
) -> None:
    """A member that has lost its hub does not know whether processes of the hub still run."""
    leases.take(0, ONE)
    leases.release(ONE.gang, by_a_member)
    leases.release(ONE.gang, by_the_hub)
    lease = leases.latest()
    assert lease is not None
    assert (lease.is_released, lease.ends_within) == (True, ends_within)


@in_loop
async def test_a_gang_that_has_lost_its_lease_and_begins_again_does_not_wait_for_itself(
    leases: LeaseFiles, caplog: pytest.LogCaptureFixture
) -> None:
    hub = Hub(leases, replace(ONE, uid=""))
    assert await hub.acquire()
    assert not await hub.acquire(), "it has it already"
    await hub.lease.stop_renewing()
    assert await hub.acquire()
    assert not caplog.messages


@in_loop
async def test_a_lease_that_is_taken_after_its_hub_was_cancelled_is_released_with_the_gang(leases: LeaseFiles) -> None:
    class Slow(LeaseFiles):
        def take(self, number: int, me: LeaseOwner) -> bool:
            time.sleep(0.5)
            return super().take(number, me)

    slow = Slow("")
    slow._folder = leases._folder
    hub = Hub(slow, ONE)
    task = asyncio.create_task(hub.acquire())
    await asyncio.sleep(0.2)
    task.cancel()
    await hub.lease.stop_renewing()
    leases.release(ONE.gang, 0)
    lease = leases.latest()
    assert lease is not None
    assert lease.is_released


@in_loop
async def test_if_the_volume_cannot_set_file_times_the_lease_is_renewed_by_a_write(
    leases: LeaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_times(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "utime", no_times)
    first = Hub(leases, ONE)
    await first.acquire()
    async with waiting(Hub(leases, OTHER)) as task:
        await asyncio.sleep(2 * ONE.ends_within)
        assert not task.done()
        assert not first.lost
        await first.lease.stop_renewing()
        await asyncio.wait_for(task, 3 * ONE.ends_within)


@pytest.mark.parametrize("failing", ["hangs", "fails", "cannot start"])
@in_loop
async def test_a_hub_that_cannot_renew_has_lost_its_lease_after_the_silence(leases: LeaseFiles, failing: str) -> None:
    class Away(LeaseFiles):
        def renew(self, number: int, me: LeaseOwner) -> bool:
            if failing == "hangs":
                time.sleep(2)
            if failing == "cannot start":
                raise RuntimeError("can't start new thread")
            raise Failure(Exit.IO_FAILED, "Stale file handle")

    away = Away("")
    away._folder = leases._folder
    first = Hub(away, ONE)
    begun = time.monotonic()
    await first.acquire()
    await until(lambda: first.lost, "that it is lost")
    assert time.monotonic() - begun >= SILENCE
    assert first.lost[0].kind == "volume"
    assert first.lost[0].code == Exit.IO_FAILED


@in_loop
async def test_the_silence_counts_from_the_last_renewal(leases: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Hub(leases, ONE)
    await first.acquire()
    await asyncio.sleep(1.5 * SILENCE)
    monkeypatch.setattr(LeaseFiles, "renew", lambda *_: time.sleep(2))
    begun = time.monotonic()
    await until(lambda: first.lost, "that it is lost")
    assert time.monotonic() - begun > SILENCE / 2


@in_loop
async def test_a_volume_that_refuses_writes_still_counts_as_reachable(
    leases: LeaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Hub(leases, ONE)
    await first.acquire()
    calls = []

    def full(path: str, *_: object) -> None:
        calls.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "utime", full)
    await until(lambda: len(calls) > 10, "that it tries")
    assert not first.lost


@in_loop
async def test_a_lease_that_was_removed_is_taken_again(leases: LeaseFiles, tmp_path: Path) -> None:
    first = Hub(leases, ONE)
    await first.acquire()
    path = tmp_path / ".launcher/.leases/0"
    path.unlink()
    path.parent.rmdir()
    await until(path.exists, "the lease")
    assert not first.lost


@in_loop
async def test_a_gang_that_waits_too_long_names_the_other_gang_and_what_to_do(leases: LeaseFiles) -> None:
    await Hub(leases, ONE).acquire()
    for job, advice in (("job", "submitted twice"), ("job-2", "give this job another name")):
        with pytest.raises(Failure, match=advice) as failure:
            await Hub(leases, replace(OTHER, job=job), patience=0.3).acquire()
        assert failure.value.code == Exit.TIMED_OUT
        assert "pod-1 of job job" in failure.value.message


def test_a_lease_that_a_network_volume_does_not_list_yet_counts(
    leases: LeaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases.take(0, ONE)
    leases.release(ONE.gang, 0)
    leases.take(1, OTHER)
    monkeypatch.setattr(os, "listdir", lambda _: ["0", "0.over"])
    lease = leases.latest()
    assert lease is not None
    assert lease.holder == OTHER
    assert not leases.renew(0, ONE)


@in_loop
async def test_a_gang_whose_folder_was_deleted_ends_when_another_gang_has_begun(
    leases: LeaseFiles, tmp_path: Path
) -> None:
    """A user has deleted the output folder while a gang trains. Its number belongs to another gang now."""
    first = Hub(leases, ONE)
    assert await first.acquire()
    shutil.rmtree(tmp_path / ".launcher")  # the first renewal is due in 0.1 s
    assert leases.take(0, OTHER)
    await until(lambda: first.lost, "that the first gang ends")
    assert "pod-2" in first.lost[0].what
    await first.lease.stop_renewing()
    leases.release(ONE.gang, 0)
    lease = leases.latest()
    assert lease is not None
    assert (lease.holder.gang, lease.is_released) == (OTHER.gang, False)
    assert leases.renew(0, OTHER)


def test_a_gang_with_a_higher_number_does_not_take_a_deleted_folder_from_its_new_gang(
    leases: LeaseFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for a moment: the new gang would take that for a later lease, and end."""
    for number, owner in enumerate([OTHER, OTHER, ONE]):
        assert leases.take(number, owner)
    shutil.rmtree(tmp_path / ".launcher")
    assert leases.take(0, OTHER)
    monkeypatch.setattr(LeaseFiles, "take", lambda *_: pytest.fail("it takes a lease"))
    assert not leases.renew(2, ONE)
    assert leases.renew(0, OTHER)


def test_of_two_gangs_that_take_a_deleted_folder_at_the_same_time_the_new_one_keeps_it(
    leases: LeaseFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new gang has begun after the old gang has seen that there is no lease."""
    for number in range(3):
        assert leases.take(number, ONE)
    shutil.rmtree(tmp_path / ".launcher")
    take = LeaseFiles.take

    def late(self: LeaseFiles, number: int, me: LeaseOwner) -> bool:
        monkeypatch.undo()
        assert take(self, 0, OTHER)
        return take(self, number, me)

    monkeypatch.setattr(LeaseFiles, "take", late)
    assert not leases.renew(2, ONE)
    assert leases.renew(0, OTHER)


def test_the_folder_is_opened_anew_for_each_renewal(leases: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a folder is opened, NFS asks its server. Otherwise a list of names may be a minute old."""
    opened: list[str] = []
    real = os.open
    assert leases.take(0, ONE)

    def open_and_note(path: str, *args: Any, **more: Any) -> int:
        opened.append(path)
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", open_and_note)
    for _ in range(2):
        opened.clear()
        assert leases.renew(0, ONE)
        assert opened[:4] == [leases._folder.path.rsplit("/", 2)[0], ".launcher", ".leases", "0"]


@needs_root
def test_a_lease_is_released_on_a_full_volume(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", "1m") as volume:
        leases = LeaseFiles(str(volume))
        assert leases.take(0, replace(ONE, ends_within=155))
        with suppress(OSError), (volume / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        leases.release(ONE.gang, 2.5)
        lease = leases.latest()
        assert lease is not None
        assert (lease.is_released, lease.ends_within, lease.holder.gang) == (True, 2.5, ONE.gang)
        assert not leases.renew(0, ONE)


@in_loop
async def test_a_hub_waits_for_a_lease_that_cannot_be_used_and_names_it(leases: LeaseFiles, tmp_path: Path) -> None:
    assert leases.take(0, ONE)
    path = tmp_path / ".launcher/.leases/0"
    path.write_bytes(b"")
    with pytest.raises(Failure, match="remove this file if no gang trains") as failure:
        await Hub(leases, OTHER, patience=0.3).acquire()
    assert str(path) in failure.value.message
    assert failure.value.code == Exit.TIMED_OUT


@in_loop
async def test_a_gang_of_an_elastic_job_does_not_wait_for_another_gang_that_renews_its_lease(
    leases: LeaseFiles,
) -> None:
    one, other = Hub(leases, ONE), Hub(leases, OTHER)
    assert await one.lease.acquire(yields=True)
    with pytest.raises(OtherGangRuns, match="pod-1"):
        await other.lease.acquire(yields=True)
    await one.lease.stop_renewing()
    await LEASE.run(leases.latest)  # the last renewal is written
    assert await other.lease.acquire(yields=True), "the lease has expired"
    await other.lease.stop_renewing()


def test_the_address_of_a_hub_is_in_the_lease_of_an_elastic_job_only(leases: LeaseFiles, tmp_path: Path) -> None:
    leases.take(0, ONE)
    assert "address" not in (tmp_path / ".launcher" / ".leases" / "0").read_text()
    leases.take(1, replace(ONE, address="10.0.0.1"))
    latest = leases.latest()
    assert latest is not None
    assert latest.holder.address == "10.0.0.1"
