"""A session ends: the member leaves its gang to form a new one, or for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import Finish, HubLost, Stop, Verdict
from launcher.model import Cause, CauseKind
from launcher.run.session import FAILURE_GRACE, Rejoin
from launcher.store.record import Record
from tests.support.members import in_loop, until
from tests.support.sessions import IDENTITY, KILLED, LOST, Pod, pod_of

REJOINS: dict[str, Any] = {"LAUNCHER_MAX_RESTARTS": "3"}
NO_SHARD = Failure(Exit.NO_INPUT, "no shard")


async def leaving(pod: Pod, cause: Cause = LOST) -> asyncio.Future[Stop | Finish | Rejoin]:
    """Return a session that has ended its processes, and waits until no process of the gang runs."""
    _, running = await pod.joins()
    await pod.trains()
    pod.gang.tell(Stop(cause, rejoin=True))
    await until(lambda: "finished" in pod.gang.waits, "it waits for the others")
    return running


@in_loop
async def test_after_the_loss_of_a_member_the_session_ends_to_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    running = await leaving(pod)
    assert pod.supervisor.closed
    assert pod.gang.reported("stopped") == [None]
    assert not running.done()
    assert not pod.gang.closed
    pod.gang.finished.set()
    assert await asyncio.wait_for(running, 8) == Rejoin(LOST)
    assert pod.gang.closed
    assert pod.staging.closed
    assert pod.node.last_cause == LOST


@in_loop
async def test_the_member_that_stands_for_the_lost_one_says_what_kubernetes_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    await pod.joins()
    pod.finders[0].answer = "OOMKilled"
    recorded: list[tuple[object, ...]] = []
    monkeypatch.setattr(pod.node, "record_peer", lambda *of: recorded.append(of))
    running = pod.tasks[0]
    pod.gang.finished.set()
    pod.gang.tell(Stop(LOST, rejoin=True))
    explained = replace(LOST, what="its connection ended; Kubernetes says: OOMKilled")
    assert await asyncio.wait_for(running, 8) == Rejoin(explained)
    assert pod.node.last_cause == explained
    assert recorded == [("pod_ended", LOST.rank, LOST.pod, "OOMKilled")]


@in_loop
async def test_a_member_that_is_at_fault_for_good_does_not_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    _, running = await pod.joins()
    cause = Cause(CauseKind.STAGING, 1, "pod-1", "no shard", Exit.NO_INPUT)
    pod.gang.tell(Stop(cause, rejoin=True))
    assert await asyncio.wait_for(running, 8) == Stop(cause, rejoin=True)


@in_loop
async def test_a_member_whose_failure_a_restart_repairs_joins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    _, running = await pod.joins()
    cause = replace(KILLED, rank=1, pod="pod-1")
    pod.gang.finished.set()
    pod.gang.tell(Stop(cause, rejoin=True))
    assert await asyncio.wait_for(running, 8) == Rejoin(cause)


@in_loop
async def test_sigterm_while_a_member_leaves_to_join_again_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    running = await leaving(pod)
    pod.sigterm()
    assert await asyncio.wait_for(running, 8) == Stop(LOST)


@in_loop
async def test_a_member_that_got_sigterm_does_not_join_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    _, running = await pod.joins()
    pod.sigterm()
    pod.gang.tell(Stop(LOST, rejoin=True))
    assert await asyncio.wait_for(running, 8) == Stop(LOST, rejoin=True)


@in_loop
async def test_a_member_with_processes_that_do_not_end_does_not_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    _, running = await pod.joins()
    await pod.trains()
    pod.supervisor.blocked = pod.supervisor.started[:1]
    pod.gang.finished.set()
    pod.gang.tell(Stop(LOST, rejoin=True))
    stop = await asyncio.wait_for(running, 8)
    assert isinstance(stop, Stop)
    assert (stop.cause.kind, stop.cause.rank) == (CauseKind.LAUNCHER, 1)


@in_loop
async def test_a_session_after_another_starts_no_early_server_and_copies_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    running = await leaving(pod)
    pod.gang.finished.set()
    await asyncio.wait_for(running, 8)
    session = pod.session(after=LOST)
    pod.begin(session.run())
    await until(lambda: session.joined and pod.gang.reported("staged"))
    assert (len(pod.gangs), len(pod.supervisors)) == (2, 2)
    assert pod.supervisor.started == []
    assert pod.staging.runs == 1
    await pod.begins(1)
    assert pod.supervisor.logs[-1][1].endswith("generation 1, pod pod-1, because rank 0 (pod-0): its connection ended")


@pytest.mark.parametrize("rejoins", [True, False])
@in_loop
async def test_a_member_that_has_trained_and_lost_its_hub_finishes_only_if_the_job_is_marked_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rejoins: bool
) -> None:
    monkeypatch.setattr("launcher.run.node._MARK_SEEN_WITHIN", 0.05)
    ends = []
    for complete in (False, True):
        pod = pod_of(monkeypatch, tmp_path, **(REJOINS if rejoins else {}))
        _, running = await pod.joins()
        await pod.trains()
        if complete:
            monkeypatch.setattr("launcher.run.node._MARK_SEEN_WITHIN", 8)
            Record(pod.config.output, IDENTITY).mark_complete()
        pod.gang.finished.set()
        pod.gang.tell(HubLost(LOST))
        ends.append(await asyncio.wait_for(running, 8))
    assert ends == [Rejoin(LOST) if rejoins else Stop(LOST), Finish()]


@pytest.mark.parametrize(("kind", "grace"), [(CauseKind.STOPPED, 17.0), (CauseKind.LOST, FAILURE_GRACE)])
@in_loop
async def test_processes_get_the_whole_grace_period_only_if_a_member_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: CauseKind, grace: float
) -> None:
    pod = pod_of(monkeypatch, tmp_path, LAUNCHER_STOP_GRACE="17", **REJOINS)
    await leaving(pod, replace(LOST, kind=kind))
    assert pod.supervisor.ended_within == [grace]


@pytest.mark.parametrize(
    ("rank", "lost", "hub_died", "releases"),
    [(0, 2, False, True), (1, 2, False, False), (1, 0, True, True), (1, 2, True, True)],
)
@in_loop
async def test_the_hub_or_the_members_of_a_lost_hub_release_the_folder_when_no_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, lost: int, hub_died: bool, releases: bool
) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=rank, size=3, **REJOINS)
    released: list[float | None] = []

    async def spy(within: float | None) -> None:
        assert pod.gang.finished.is_set()
        assert not pod.gang.closed
        released.append(within)

    monkeypatch.setattr(pod.node, "release_folder", spy)
    running = await leaving(pod, replace(LOST, rank=lost, pod=f"pod-{lost}"))
    assert released == []
    pod.gang.hub_died = hub_died
    pod.gang.finished.set()
    assert isinstance(await asyncio.wait_for(running, 8), Rejoin)
    assert released == ([0.0] if releases else [])


@in_loop
async def test_the_hub_records_what_kubernetes_knows_about_a_lost_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=0, **REJOINS)
    _, running = await pod.joins()
    pod.finders[0].answer = "OOMKilled"
    await pod.gang.prepare()
    await pod.trains()
    lost = replace(LOST, rank=1, pod="pod-1")
    assert pod.gang.judge(lost) == (lost, Verdict.REJOIN)
    pod.gang.finished.set()
    pod.gang.tell(Stop(lost, rejoin=True))
    await asyncio.wait_for(running, 8)
    assert pod.node.generations is not None
    (generation,) = pod.node.generations.history.content()["generations"]
    assert generation["first_cause"]["what"] == "its connection ended; Kubernetes says: OOMKilled"


@in_loop
async def test_rank_1_explains_the_end_of_the_generation_of_a_lost_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    explained: list[tuple[int, Cause]] = []

    async def spy(generation: int, cause: Cause) -> None:
        explained.append((generation, cause))

    monkeypatch.setattr(pod.node, "explain_end", spy)
    running = await leaving(pod)
    pod.gang.finished.set()
    await asyncio.wait_for(running, 8)
    assert explained == [(0, LOST)]


@in_loop
async def test_the_phases_of_a_member_that_joins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    phases: list[str] = []
    monkeypatch.setattr(pod.node, "enter", phases.append)
    await leaving(pod)
    assert phases == ["starting", "starting", "training", "gathering"]  # it has joined, then its generation begins
