"""One session: it joins a gang, starts its processes as often as the hub decides, and leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import Begin, Finish, Restart, Stop, Train, Verdict
from launcher.model import FIRST, Cause, CauseKind
from launcher.run import failures, join
from launcher.run.session import Rejoin
from launcher.store.record import Record
from tests.support.members import in_loop, until
from tests.support.sessions import IDENTITY, KILLED, LOST, pod_of, settle

REJOINS: dict[str, Any] = {"LAUNCHER_MAX_RESTARTS": "3"}
NO_SHARD = Failure(Exit.NO_INPUT, "no shard")


# ---- joining ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_an_early_server_starts_before_the_join_and_the_copy_is_reported_after_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    pod.staging.may_end.clear()
    session = pod.session()
    pod.begin(session.run())
    await until(lambda: pod.staging.runs == 1, "it copies before it has joined")
    assert pod.supervisor.roles == ["pserver"]
    assert not session.joined
    assert pod.gang.reported("staged") == []
    pod.staging.may_end.set()
    await until(lambda: pod.gang.reported("staged"))
    pod.gang.may_join.set()
    await until(lambda: session.joined)


@in_loop
async def test_the_search_for_peers_ends_when_this_member_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    pod.begin(pod.session().run())
    await until(lambda: pod.gangs)
    await settle()
    assert not pod.finders[0].closed
    pod.gang.may_join.set()
    await until(lambda: pod.finders[0].closed)


@in_loop
async def test_a_job_that_is_complete_already_finishes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    record = Record(pod.config.output, IDENTITY)
    record.open()
    record.mark_complete()
    session = pod.session()
    assert await asyncio.wait_for(session.run(), 8) == Finish()
    assert not session.joined


@in_loop
async def test_a_join_that_fails_stops_the_session_without_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path / "missing")
    stop = await asyncio.wait_for(pod.session().run(), 8)
    assert isinstance(stop, Stop)
    assert (stop.cause.kind, stop.cause.rank, stop.cause.code) == (CauseKind.PEERS, 1, Exit.NO_INPUT)
    assert pod.gang.failures == []


@in_loop
async def test_failures_before_the_join_are_held_and_reported_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    pod.staging.may_end.clear()
    pod.staging.error = NO_SHARD
    session = pod.session()
    pod.begin(session.run())
    await until(lambda: pod.supervisor.started)
    pod.supervisor.die("pserver", 134)
    await until(lambda: len(session.failures.held) == 1)
    await until(lambda: pod.staging.runs)
    pod.staging.may_end.set()
    await until(lambda: len(session.failures.held) == 2)
    assert pod.gang.failures == []
    pod.gang.may_join.set()
    await until(lambda: session.joined)
    reported = [(cause.kind, cause.rank, cause.pod, attempt) for cause, attempt in pod.gang.failures]
    assert reported == [(CauseKind.PSERVER, 1, "pod-1", 0), (CauseKind.STAGING, 1, "pod-1", None)]


@in_loop
async def test_a_failure_that_is_held_for_too_long_stops_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_HOLD", 0.05)
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    pod.staging.error = NO_SHARD
    stop = await asyncio.wait_for(pod.session().run(), 8)
    assert isinstance(stop, Stop)
    assert (stop.cause.kind, stop.cause.what) == (CauseKind.STAGING, "no shard")


@in_loop
async def test_a_join_that_fails_after_another_failure_stops_with_the_first_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "_HUB_FIRST", 0.05)
    pod = pod_of(monkeypatch, tmp_path, LAUNCHER_PEER_TIMEOUT="0.05")
    pod.may_join = False
    pod.staging.error = NO_SHARD
    stop = await asyncio.wait_for(pod.session().run(), 8)
    assert isinstance(stop, Stop)
    assert stop.cause.kind is CauseKind.STAGING


@in_loop
async def test_an_unexpected_exception_is_reported_with_its_step_and_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.staging.error = ZeroDivisionError("no shards")
    pod.begin(pod.session().run())
    await until(lambda: pod.gang.causes)
    (cause,) = pod.gang.causes
    assert (cause.kind, cause.code) == (CauseKind.STAGING, Exit.MASKED)
    assert cause.what.startswith("a fault of the launcher itself in 'staging', please report it:\nTraceback")
    assert cause.what.endswith("ZeroDivisionError: no shards\n")


# ---- one attempt after the other -------------------------------------------------------------------------------------


@in_loop
async def test_the_events_of_the_hub_reach_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.trains()
    assert pod.supervisor.roles == ["pserver", "trainer"]


@pytest.mark.parametrize("decision", [Restart(1, KILLED), Stop(KILLED)], ids=["restart", "stop"])
@in_loop
async def test_a_decision_counts_before_a_death_of_the_same_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Restart | Stop
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    _, running = await pod.joins()
    await pod.trains()
    pod.supervisor.die("trainer", 137)
    pod.gang.tell(decision)
    if isinstance(decision, Stop):
        assert await asyncio.wait_for(running, 8) == decision
    else:
        await until(lambda: pod.gang.reported("ended") == [1])
    await settle()
    assert pod.gang.failures == []


@in_loop
async def test_a_restart_ends_all_processes_and_starts_them_again_after_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.trains()
    first = pod.supervisor
    first.may_end.clear()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: first.ended_within)
    await settle()
    assert pod.gang.reported("ended") == []
    first.may_end.set()
    await until(lambda: pod.gang.reported("ended") == [1])
    assert first.closed
    assert pod.supervisor is not first
    assert pod.supervisor.started == []
    await pod.trains(1)
    assert pod.supervisor.roles == ["pserver", "trainer"]
    (_, mark) = pod.supervisor.logs[-1]
    assert mark == "generation 1, pod pod-1, because rank 0 (pod-0): trainer was killed"


@in_loop
async def test_after_two_restarts_in_a_row_only_the_latest_attempt_ends_and_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.trains()
    first = pod.supervisor
    first.may_end.clear()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: len(pod.supervisors) == 2)
    pod.gang.tell(Restart(2, KILLED))
    await until(lambda: len(pod.supervisors) == 3)
    await settle()
    assert pod.gang.reported("ended") == []  # the processes of the first attempt still run
    first.may_end.set()
    await until(lambda: pod.gang.reported("ended"))
    await pod.trains(2)
    assert pod.gang.reported("ended") == [2]
    assert [supervisor.roles for supervisor in pod.supervisors[1:]] == [[], ["pserver", "trainer"]]


@in_loop
async def test_processes_that_do_not_end_before_a_restart_are_a_failure_of_this_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.trains()
    pod.supervisor.blocked = pod.supervisor.started
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: pod.gang.causes)
    (cause,) = pod.gang.causes
    assert (cause.kind, cause.rank, cause.code) == (CauseKind.LAUNCHER, 1, Exit.IO_FAILED)
    assert "did not end after SIGKILL (pserver, trainer)" in cause.what
    assert pod.gang.reported("ended") == []


@in_loop
async def test_a_restart_before_the_first_generation_keeps_the_logs_of_early_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: pod.gang.reported("ended") == [1])
    folder = str(tmp_path / "job" / "output" / "node_1")
    assert pod.supervisors[0].logs == [(folder, "pod pod-1, before a generation began")]


@in_loop
async def test_a_death_after_a_restart_belongs_to_the_new_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.trains()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: pod.gang.reported("ended") == [1])
    await pod.trains(1)
    pod.supervisor.die("trainer", 1)
    await until(lambda: pod.gang.failures)
    assert [(cause.code, attempt) for cause, attempt in pod.gang.failures] == [(1, 1)]


# ---- signals and the lease -------------------------------------------------------------------------------------------


@in_loop
async def test_sigterm_before_the_join_stops_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    running = pod.begin(pod.session().run())
    await until(lambda: pod.supervisor.started)
    pod.sigterm()
    stop = await asyncio.wait_for(running, 8)
    assert (stop.cause.kind, stop.cause.rank, stop.rejoin) == (CauseKind.STOPPED, 1, False)


@in_loop
async def test_sigterm_after_the_join_is_reported_and_waits_for_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    _, running = await pod.joins()
    await pod.begins()
    pod.sigterm()
    (cause,) = pod.gang.causes
    assert (cause.kind, cause.code) == (CauseKind.STOPPED, Exit.STOPPED)
    pod.gang.tell(Train())
    await settle()
    assert pod.supervisor.roles == ["pserver"]
    assert not running.done()
    pod.gang.tell(Stop(cause))
    assert await asyncio.wait_for(running, 8) == Stop(cause)


@in_loop
async def test_the_second_signal_kills_also_processes_of_an_attempt_that_still_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.begins()
    pod.supervisor.may_end.clear()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: len(pod.supervisors) == 2)
    pod.sigterm()
    pod.sigterm()
    assert [supervisor.killed for supervisor in pod.supervisors] == [True, True]


@in_loop
async def test_the_second_signal_kills_no_process_of_an_attempt_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.begins()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: pod.gang.reported("ended"))
    pod.sigterm()
    assert not pod.supervisor.killed
    pod.sigterm()
    assert [supervisor.killed for supervisor in pod.supervisors] == [False, True]


@in_loop
async def test_a_trainer_that_ended_before_sigterm_still_counts_as_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.begins()
    pod.gang.tell(Train())
    await until(lambda: "trainer" in pod.supervisor.roles)
    pod.supervisor.die("trainer", 0)
    pod.sigterm()
    assert pod.gang.reported("trained")


@in_loop
async def test_an_attempt_that_is_made_after_sigterm_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    await pod.joins()
    await pod.begins()
    pod.sigterm()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: pod.gang.reported("ended") == [1])
    pod.gang.tell(Begin(1, FIRST))
    await until(lambda: pod.supervisor.logs)
    await settle()
    assert pod.supervisor.started == []


@in_loop
async def test_a_lost_lease_is_a_failure_only_while_this_member_is_in_its_gang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, **REJOINS)
    _, running = await pod.joins()
    lost = Cause(CauseKind.VOLUME, 1, "pod-1", "the volume has not answered", Exit.IO_FAILED)
    pod.node.lose_lease(lost)
    assert pod.gang.causes == [lost]
    pod.gang.tell(Stop(LOST, rejoin=True))
    await until(lambda: "finished" in pod.gang.waits, "it leaves")
    pod.node.lose_lease(lost)
    pod.gang.finished.set()
    assert await asyncio.wait_for(running, 8) == Rejoin(LOST)
    assert pod.gang.causes == [lost]


# ---- on the hub ------------------------------------------------------------------------------------------------------


@in_loop
async def test_without_restarts_the_hub_judges_a_death_as_the_end_and_with_restarts_as_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = []
    for number, variables in enumerate(({}, REJOINS)):
        (tmp_path / str(number)).mkdir()
        pod = pod_of(monkeypatch, tmp_path / str(number), rank=0, **variables)
        await pod.joins()
        await pod.gang.prepare()
        verdicts.append(pod.gang.judge(KILLED))
    assert verdicts == [(KILLED, Verdict.STOP), (KILLED, Verdict.RESTART)]


@in_loop
async def test_a_hub_that_has_not_prepared_a_generation_judges_every_cause_as_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=0, **REJOINS)
    pod.may_join = False
    pod.begin(pod.session().run())
    await until(lambda: pod.gangs)
    assert pod.gang.judge(KILLED) == (KILLED, Verdict.STOP)


@in_loop
async def test_the_hub_prepares_the_first_generation_only_after_it_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, rank=0)
    pod.may_join = False
    pod.begin(pod.session().run())
    await until(lambda: pod.gangs)
    given_up = pod.begin(pod.gang.prepare())
    await settle()
    given_up.cancel()  # the next call must work all the same
    preparing = pod.begin(pod.gang.prepare())
    await settle()
    assert not preparing.done()
    pod.gang.may_join.set()
    assert await asyncio.wait_for(preparing, 8) == FIRST
