"""One launcher runs session after session, until its job is over for this member."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import Restart, Stop
from launcher.model import Cause, CauseKind, Outcome
from launcher.run import launcher, shutdown
from launcher.run.faults import Faults
from launcher.run.session import Session
from tests.support.members import in_loop, until
from tests.support.paths import REPOSITORY
from tests.support.sessions import KILLED, LOST, Pod, job_config, pod_of

REJOINS = "3"


def runs(pod: Pod) -> asyncio.Future[Outcome]:
    return pod.begin(launcher.run(pod.config, pod.flags, pod.command, pod.signals, None, pod.factories))


@in_loop
async def test_a_job_of_one_member_trains_and_is_complete(tmp_path: Path) -> None:
    pod = Pod(job_config(tmp_path, rank=0, size=1))
    running = runs(pod)
    await until(lambda: pod.supervisors and pod.supervisor.roles == ["trainer"])
    pod.supervisor.die("trainer", 0)
    assert await asyncio.wait_for(running, 8) == Outcome(0, None, "the job is complete")
    assert (tmp_path / "job" / "output" / ".launcher" / "job-1" / "complete").exists()
    assert pod.supervisor.closed


@in_loop
async def test_a_job_of_one_member_ends_with_the_exit_code_of_its_trainer(tmp_path: Path) -> None:
    pod = Pod(job_config(tmp_path, rank=0, size=1))
    running = runs(pod)
    await until(lambda: pod.supervisors and pod.supervisor.roles == ["trainer"])
    pod.supervisor.die("trainer", 137, "Killed")
    result = await asyncio.wait_for(running, 8)
    assert result.cause is not None
    assert (result.code, result.cause.kind, result.cause.tail) == (137, CauseKind.TRAINER, ("Killed",))


@in_loop
async def test_session_follows_session_and_gets_the_cause_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, LAUNCHER_MAX_RESTARTS=REJOINS)
    running = runs(pod)
    await until(lambda: pod.gangs and pod.gang.reported("staged"))
    await pod.trains()
    pod.may_join = False
    pod.gang.finished.set()
    pod.gang.tell(Stop(LOST, rejoin=True))
    await until(lambda: len(pod.gangs) == 2)
    assert pod.gangs[0].closed
    pod.gang.others_ended.set()
    pod.sigterm()
    result = await asyncio.wait_for(running, 8)
    assert (result.code, result.cause) == (Exit.STOPPED, LOST)  # the cause of the first session


@in_loop
async def test_a_member_that_joins_again_starts_its_processes_in_the_new_gang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path, LAUNCHER_MAX_RESTARTS=REJOINS)
    runs(pod)
    await until(lambda: pod.gangs and pod.gang.reported("staged"))
    await pod.trains()
    pod.gang.finished.set()
    pod.gang.tell(Stop(LOST, rejoin=True))
    await until(lambda: len(pod.gangs) == 2 and pod.gang.reported("staged"))
    assert pod.supervisor.started == []
    await pod.trains(1)
    assert pod.supervisor.logs[-1][1] == "generation 1, pod pod-1, because rank 0 (pod-0): its connection ended"


@in_loop
async def test_a_signal_that_was_received_before_the_start_ends_the_launcher_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    pod.may_join = False
    pod.sigterm()
    running = runs(pod)
    await until(lambda: pod.gangs)
    pod.gang.others_ended.set()
    result = await asyncio.wait_for(running, 8)
    assert (result.code, result.text) == (Exit.STOPPED, "got SIGTERM, and stopped in order")
    assert [supervisor.started for supervisor in pod.supervisors] == [[]]


@in_loop
async def test_the_end_belongs_to_the_latest_attempt_and_waits_for_the_attempt_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "_LEAVE_WITHIN", 0.05)
    pod = pod_of(monkeypatch, tmp_path)
    running = runs(pod)
    await until(lambda: pod.gangs and pod.gang.reported("staged"))
    await pod.trains()
    first = pod.supervisor
    first.may_end.clear()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: len(pod.supervisors) == 2)
    pod.gang.tell(Stop(KILLED))
    await until(lambda: pod.supervisor.ended_within)
    assert pod.gang.reported("stopped") == []
    first.may_end.set()
    assert (await asyncio.wait_for(running, 8)).code == Exit.PEER_FAILED
    assert pod.gang.reported("stopped") == [None]
    assert all(supervisor.closed for supervisor in pod.supervisors)


@in_loop
async def test_a_fault_of_the_launcher_itself_is_reported_and_ends_it_with_an_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    running = runs(pod)
    await until(lambda: pod.gangs and pod.gang.reported("staged"))
    await pod.trains()

    def fails(session: Session, number: int, cause: Cause) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Session, "_restart", fails)
    pod.gang.finished.set()
    pod.gang.others_ended.set()
    pod.gang.tell(Restart(1, KILLED))
    result = await asyncio.wait_for(running, 8)
    assert result.cause is not None
    assert (result.code, result.cause.kind) == (Exit.MASKED, CauseKind.LAUNCHER)
    assert "a bug" in result.cause.what
    assert pod.gang.causes == [result.cause]


async def trains(pod: Pod) -> None:
    await until(lambda: pod.gangs and pod.gang.reported("staged"))
    await pod.trains()
    pod.gang.finished.set()
    pod.gang.others_ended.set()


@in_loop
async def test_an_exception_that_only_the_loop_sees_is_reported_and_ends_this_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    faults = Faults()
    faults.watch()
    running = pod.begin(
        launcher.run(pod.config, pod.flags, pod.command, pod.signals, None, pod.factories, faults=faults)
    )
    await trains(pod)
    asyncio.get_running_loop().call_soon(lambda: [][0])
    result = await asyncio.wait_for(running, 8)
    assert result.cause is not None
    assert (result.code, result.cause.kind) == (Exit.MASKED, CauseKind.LAUNCHER)
    assert "IndexError" in result.cause.what
    assert pod.gang.causes == [result.cause]
    assert pod.supervisor.closed


@in_loop
async def test_a_fault_during_the_shutdown_is_reported_to_the_gang_before_this_member_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> Outcome:
        raise KeyError("a bug")

    monkeypatch.setattr(launcher, "shut_down", fails)
    pod = pod_of(monkeypatch, tmp_path)
    running = runs(pod)
    await trains(pod)
    pod.gang.tell(Stop(KILLED))
    with pytest.raises(Failure, match="a bug") as caught:
        await asyncio.wait_for(running, 8)
    assert caught.value.code == Exit.MASKED
    assert [cause.kind for cause in pod.gang.causes] == [CauseKind.LAUNCHER]
    assert pod.gang.closed


@in_loop
async def test_a_signal_for_the_processes_reaches_those_of_the_latest_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of(monkeypatch, tmp_path)
    runs(pod)
    await until(lambda: pod.gangs and pod.gang.reported("staged"))
    await pod.trains()
    pod.gang.tell(Restart(1, KILLED))
    await until(lambda: len(pod.supervisors) == 2)
    pod.signals.on_forwarded(signal.SIGUSR1)
    assert [supervisor.forwarded for supervisor in pod.supervisors] == [[], [signal.SIGUSR1]]


_ESCAPES = """
import sys
from launcher.run import launcher

async def fails(*_: object, **__: object) -> None:
    raise KeyError("a bug")

launcher.run = fails
from launcher.__main__ import main
sys.argv[1:] = ["run", "--", "true"]
main()
"""


def test_an_exception_that_escapes_from_the_loop_is_the_cause_in_the_termination_message(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.touch()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "LAUNCHER_TERMINATION_LOG": str(message),
    }
    done = subprocess.run(
        [sys.executable, "-c", _ESCAPES], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == Exit.MASKED, done.stderr
    assert "a fault of the launcher itself in 'launcher', please report it" in message.read_text()
    assert "KeyError: 'a bug'" in message.read_text()
