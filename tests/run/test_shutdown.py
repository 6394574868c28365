"""The end of a launcher: who leaves first, what is written, and that nothing can hold the end for long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.base.aio import run_in_thread
from launcher.errors import Exit, Failure
from launcher.gang import Finish, Stop
from launcher.model import Cause, CauseKind, Outcome
from launcher.run import outcome, shutdown
from launcher.run.session import FAILURE_GRACE, Session
from launcher.store.lease_files import LeaseFiles
from tests.support.hubs import fire, hold_timers
from tests.support.members import in_loop, until
from tests.support.sessions import KILLED, LOST, Pod, pod_of, settle

MINE = Cause(CauseKind.TRAINER, 1, "pod-1", "trainer was killed", 137, ("the last line",))
STOPPED = Cause(CauseKind.STOPPED, 0, "pod-0", "got SIGTERM", Exit.STOPPED)


def ends(pod: Pod, session: Session, decision: Stop | Finish) -> asyncio.Future[Outcome]:
    return pod.begin(shutdown.shut_down(decision, pod.config, pod.node, session, pod.signals))


async def training(pod: Pod) -> Session:
    session, _ = await pod.joins()
    await pod.trains()
    pod.gang.others_ended.set()
    return session


class StalledFlush:
    """A volume that writes no file until the test allows it."""

    def __init__(self, pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.within: list[float] = []
        monkeypatch.setattr(pod.node.journal, "flush", self._flush)

    def _flush(self, within: float) -> bool:
        self.within.append(within)
        self.began.set()
        return self.may_end.wait(60)


@pytest.fixture
def threads() -> Iterator[list[threading.Event]]:
    """Events that end blocked threads when the test is over."""
    events: list[threading.Event] = []
    yield events
    for event in events:
        event.set()


# ---- who leaves first ------------------------------------------------------------------------------------------------


@in_loop
async def test_the_member_at_fault_does_not_wait_for_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    result = await asyncio.wait_for(ends(pod, session, Stop(MINE)), 8)
    assert result.code == 137
    assert pod.gang.waits == []
    assert pod.gang.reported("stopped") == [None]
    assert pod.gang.closed


@in_loop
async def test_every_other_member_waits_until_the_member_at_fault_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "_LEAVE_WITHIN", 60.0)
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    ending = ends(pod, session, Stop(KILLED))
    await until(lambda: "finished" in pod.gang.waits)
    assert pod.gang.reported("stopped") == [None]
    await settle()
    assert not pod.gang.closed
    pod.gang.finished.set()
    assert (await asyncio.wait_for(ending, 8)).code == Exit.PEER_FAILED
    assert pod.gang.closed


@in_loop
async def test_the_wait_for_the_member_at_fault_ends_after_1_5_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    timers = hold_timers(monkeypatch, 1.5)
    ending = ends(pod, session, Stop(KILLED))
    await until(lambda: timers)
    assert pod.gang.waits == ["finished"]
    fire(timers)
    await until(lambda: pod.gang.waits == ["finished", "others ended"])
    assert (await asyncio.wait_for(ending, 8)).code == Exit.PEER_FAILED


@in_loop
async def test_a_member_that_never_joined_waits_for_nobody_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    session = pod.session()
    pod.begin(session.run())
    await until(lambda: pod.gangs)
    pod.gang.others_ended.set()
    await asyncio.wait_for(ends(pod, session, Stop(KILLED)), 8)
    assert "finished" not in pod.gang.waits


@in_loop
async def test_stopped_is_reported_only_after_all_processes_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    pod.supervisor.may_end.clear()
    ending = ends(pod, session, Stop(MINE))
    await until(lambda: pod.supervisor.ended_within)
    await settle()
    assert pod.gang.reported("stopped") == []
    pod.supervisor.may_end.set()
    await asyncio.wait_for(ending, 8)
    assert pod.gang.reported("stopped") == [None]


@pytest.mark.parametrize(
    ("decision", "sigterm", "orderly"),
    [
        (Stop(MINE), False, False),
        (Stop(STOPPED), False, True),
        (Stop(MINE), True, True),
        (Finish(), False, True),
    ],
    ids=["failure", "stop of the job", "SIGTERM here", "finish"],
)
@in_loop
async def test_processes_get_the_whole_grace_period_unless_one_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Stop | Finish, sigterm: bool, orderly: bool
) -> None:
    pod = pod_of(monkeypatch, tmp_path, LAUNCHER_STOP_GRACE="17")
    session = await training(pod)
    pod.gang.finished.set()
    if sigterm:
        pod.sigterm()
    await asyncio.wait_for(ends(pod, session, decision), 8)
    assert pod.supervisor.ended_within == [17.0 if orderly else FAILURE_GRACE]


@in_loop
async def test_the_hub_leaves_when_all_others_have_ended_or_after_1_5_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for in_time in (True, False):
        pod = pod_of(monkeypatch, tmp_path, rank=0)
        session = await training(pod)
        pod.gang.others_ended.clear()
        pod.gang.finished.set()
        timers = hold_timers(monkeypatch, 1.5)
        ending = ends(pod, session, Stop(LOST))
        await until(lambda pod=pod: "others ended" in pod.gang.waits)  # type: ignore[misc]
        await settle()
        assert not pod.gang.closed
        if in_time:
            pod.gang.others_ended.set()
        else:
            fire(timers[-1:])
        assert await asyncio.wait_for(ending, 8)


@in_loop
async def test_a_second_signal_ends_the_wait_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=0)
    session = await training(pod)
    pod.gang.others_ended.clear()
    pod.gang.finished.set()
    pod.sigterm()
    ending = ends(pod, session, Stop(STOPPED))
    await until(lambda: "others ended" in pod.gang.waits)
    await settle()
    assert not pod.gang.closed
    pod.sigterm()
    assert (await asyncio.wait_for(ending, 8)).code == Exit.STOPPED


@in_loop
async def test_a_signal_during_the_end_reports_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    ending = ends(pod, session, Stop(MINE))
    await settle()
    pod.sigterm()
    assert (await asyncio.wait_for(ending, 8)).cause == MINE
    assert pod.gang.failures == []


# ---- what is written -------------------------------------------------------------------------------------------------


@in_loop
async def test_a_complete_job_ends_with_0_and_a_termination_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    termination = tmp_path / "termination"
    termination.touch()
    session = await training(pod)
    assert await asyncio.wait_for(ends(pod, session, Finish()), 8) == Outcome(0, None, "the job is complete")
    assert termination.read_text() == "exit code 0: the job is complete\n"
    assert pod.gang.reported("stopped") == [None]
    assert caplog.messages[-1] == "exit code 0: the job is complete"


@in_loop
async def test_the_termination_message_names_the_cause_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    termination = tmp_path / "termination"
    termination.touch()
    await asyncio.wait_for(ends(pod, await training(pod), Stop(MINE)), 8)
    assert termination.read_text() == "exit code 137: rank 1 (pod-1): trainer was killed\nthe last line\n"


@in_loop
async def test_the_termination_message_is_written_even_if_no_thread_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_thread(work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if work is outcome.write_termination_message:
            raise Failure(Exit.IO_FAILED, "no thread can be started")
        return run_in_thread(work, *args)

    monkeypatch.setattr(shutdown, "run_in_thread", without_thread)
    termination = tmp_path / "termination"
    termination.touch()
    pod = pod_of(monkeypatch, tmp_path, LAUNCHER_TERMINATION_LOG=str(termination))
    await asyncio.wait_for(ends(pod, await training(pod), Stop(MINE)), 8)
    assert termination.read_text().startswith("exit code 137: ")


@in_loop
async def test_a_server_that_fails_before_the_join_has_a_log_in_a_folder_of_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    session = pod.session()
    pod.begin(session.run())
    await until(lambda: pod.supervisor.started)
    pod.supervisor.die("pserver", 134)
    await until(lambda: session.failures.first)
    assert session.failures.first is not None
    pod.gang.others_ended.set()
    await asyncio.wait_for(ends(pod, session, Stop(session.failures.first)), 8)
    folder = str(tmp_path / "job" / "output" / "pod_pod-1")
    assert pod.supervisor.logs == [(folder, "pod pod-1, never joined")]


@in_loop
async def test_a_member_that_never_joined_and_whose_server_runs_writes_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    session = pod.session()
    pod.begin(session.run())
    await until(lambda: pod.gangs)
    pod.gang.others_ended.set()
    await asyncio.wait_for(ends(pod, session, Stop(KILLED)), 8)
    assert pod.supervisor.logs == [(None, "pod pod-1, never joined")]


@in_loop
async def test_logs_of_early_servers_are_kept_if_no_generation_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session, _ = await pod.joins()
    pod.gang.others_ended.set()
    await asyncio.wait_for(ends(pod, session, Stop(MINE)), 8)
    assert [mark for _, mark in pod.supervisor.logs] == ["pod pod-1, before a generation began"]
    assert pod.supervisor.closed


@in_loop
async def test_the_hub_records_that_the_job_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=0)
    session = await training(pod)
    await pod.gang.prepare()
    await asyncio.wait_for(ends(pod, session, Finish()), 8)
    assert pod.node.generations is not None
    history = pod.node.generations.history
    (generation,) = history.content()["generations"]
    assert (generation["ended"] is not None, generation["first_cause"], history.without_progress) == (True, None, 0)


@in_loop
async def test_a_hub_that_leaves_looks_for_no_further_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would write to the folder after the end of its lease."""
    monkeypatch.setattr("launcher.run.resume._FIRST_LOOK", 1000.0)
    pod = pod_of(monkeypatch, tmp_path, rank=0)
    session = await training(pod)
    await pod.gang.prepare()
    pod.node.passed(0)

    def looks() -> list[str]:
        return [name for task in asyncio.all_tasks() if "look_for_save" in (name := repr(task))]

    assert looks()
    await asyncio.wait_for(ends(pod, session, Finish()), 8)
    await until(lambda: not looks(), "the look ends")


@pytest.mark.parametrize(("code", "marks"), [(Exit.NO_INPUT, True), (137, False)])
@in_loop
async def test_only_a_failure_for_good_is_marked_for_the_other_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, marks: bool
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    marked: list[str] = []

    async def spy(why: str) -> None:
        marked.append(why)

    monkeypatch.setattr(session.joining, "mark_failed_for_good", spy)
    cause = Cause(CauseKind.STAGING, 1, "pod-1", "no shard", code)
    await asyncio.wait_for(ends(pod, session, Stop(cause)), 8)
    assert marked == (["exit code 66: rank 1 (pod-1): no shard"] if marks else [])


@in_loop
async def test_all_files_are_written_before_the_lease_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: list[threading.Event]
) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=0)
    session = await training(pod)
    await pod.gang.prepare()
    volume = StalledFlush(pod, monkeypatch)
    threads.append(volume.may_end)
    released: list[float | None] = []
    releases = pod.node.release_folder

    async def spy(within: float | None) -> None:
        released.append(within)
        await releases(within)

    monkeypatch.setattr(pod.node, "release_folder", spy)
    ending = ends(pod, session, Finish())
    await until(volume.began.is_set)
    await settle()
    assert released == []
    volume.may_end.set()
    await asyncio.wait_for(ending, 8)
    assert released == [0.0]
    lease = LeaseFiles(pod.config.output).latest()
    assert lease is not None
    assert lease.is_released


@in_loop
async def test_a_stalled_volume_holds_the_end_for_2_5_seconds_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: list[threading.Event]
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    session = await training(pod)
    volume = StalledFlush(pod, monkeypatch)
    threads.append(volume.may_end)
    timers = hold_timers(monkeypatch, 2.5)
    ending = ends(pod, session, Stop(MINE))
    await until(volume.began.is_set)
    assert volume.within == [2.0]
    await settle()
    assert not ending.done()
    fire(timers)
    assert (await asyncio.wait_for(ending, 8)).code == 137
    assert not volume.may_end.is_set()


@in_loop
async def test_a_member_without_a_generation_writes_nothing_while_another_gang_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []
    for trains in (True, False):
        pod = pod_of(monkeypatch, tmp_path)
        session, _ = await pod.joins()
        pod.gang.others_ended.set()

        async def another_trains(trains: bool = trains) -> bool:
            return trains

        monkeypatch.setattr(pod.node, "another_trains", another_trains)
        await asyncio.wait_for(ends(pod, session, Stop(MINE)), 8)
        written.append((tmp_path / "job" / "output" / "node_1" / "status.json").exists())
    assert written == [False, True]


@in_loop
async def test_only_the_hub_and_members_that_know_their_hub_is_dead_release_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Cause(CauseKind.LOST, 0, "pod-0", "silent", Exit.PEER_LOST, silent=True)
    releases: dict[Any, float | None] = {}
    for rank, cause in ((0, MINE), (1, MINE), (1, LOST), (1, silent)):
        pod = pod_of(monkeypatch, tmp_path, rank=rank)
        session = await training(pod)
        pod.gang.finished.set()

        async def spy(within: float | None, key: Any = (rank, cause.what)) -> None:
            releases[key] = within

        monkeypatch.setattr(pod.node, "release_folder", spy)
        await asyncio.wait_for(ends(pod, session, Stop(cause)), 8)
    assert list(releases.values()) == [0.0, None, 0.0, None]
