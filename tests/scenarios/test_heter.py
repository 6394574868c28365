"""Heter workers: trainers, servers and heter workers in separate pods are one gang, from the start to the end."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import Job, until
from tests.support.nodes import Nodes
from tests.support.programs import left
from tests.support.roles_job import HETER, HETER_ROLES, HETER_SERVER, HeterJob

SIZE = sum(HETER_ROLES.values())
# Like a program for Paddle, it finds its role and its peers in its variables.
PROGRAM = """
    import os, signal, socket, sys, time
    role = os.environ["TRAINING_ROLE"].lower().partition("_")[0]
    own = f"{role}-{os.environ['POD_IP'].rpartition('.')[2]}"
    here = os.environ["PLACE"]

    def leave(name):
        open(f"{here}/{own}-{name}", "w").close()

    if role != "trainer":
        door = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])))
        leave("listens")
        if role == "heter":
            leave(f"stage-{os.environ['STAGE_ID']}")
        signal.pause()
    for peer in os.environ["PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"].split(","):
        host, _, port = peer.rpartition(":")
        socket.create_connection((host, int(port))).close()
    leave("reached-" + open("data/train.txt").read().strip())
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[HeterJob]:
    volume = tmp_path / "volume"
    (tmp_path / "place").mkdir()
    for trainer in range(HETER_ROLES["trainer"]):
        data = volume / "quick-start" / str(trainer) / "data"
        data.mkdir(parents=True)
        (data / "train.txt").write_text(f"{trainer}\n")
    (volume / "quick-start" / "quick_start").mkdir()
    (volume / "quick-start" / "quick_start" / "settings").touch()
    with Nodes(SIZE) as nodes:
        yield HeterJob(nodes, volume, tmp_path, SIZE, PLACE=str(tmp_path / "place"))


def command(job: Job, *more: str) -> tuple[str, ...]:
    program = job.folder / "program.py"
    program.write_text("\n".join(map(textwrap.dedent, (PROGRAM, *more))))
    return ("--", sys.executable, str(program))


def test_servers_and_heter_workers_end_after_all_have_trained(job: HeterJob) -> None:
    job.start(flags=command(job))
    assert job.codes() == [0] * SIZE, job.stderr()
    assert left(job) == {
        *("trainer-1-reached-0", "trainer-2-reached-1", "pserver-3-listens"),
        *("heter-4-listens", "heter-4-stage-2", "heter-5-listens", "heter-5-stage-2"),
    }
    folders = {f"{path.parent.name}/{path.name}" for path in job.output.glob("*_*/*.log")}
    assert folders == {
        *("node_0/train.log", "node_1/train.log", "pserver_0/server.log"),
        *("heter_0/heter.log", "heter_1/heter.log"),
    }
    assert job.nothing_left()


def test_each_heter_worker_has_the_stage_of_its_pod(job: HeterJob) -> None:
    flags = command(job)
    job.start(*range(HETER), flags=flags)
    for worker, stage in enumerate(("2", "3")):
        job.start(HETER + worker, flags=flags, LAUNCHER_STAGE=stage)
    assert job.codes() == [0] * SIZE, job.stderr()
    assert {"heter-4-stage-2", "heter-5-stage-3"} <= left(job)


def test_a_stage_without_a_worker_ends_the_job_before_a_process_starts(job: HeterJob) -> None:
    job.start(flags=command(job), LAUNCHER_STAGE="3")
    codes = job.codes()
    assert 78 in codes, job.stderr()
    assert set(codes) <= {69, 78}, job.stderr()
    assert "stage 3 has a heter worker, but stage 2 has none" in job.termination(0)
    assert left(job) == set()


@pytest.mark.parametrize(
    ("launcher", "named"),
    [
        (1, "trainer 1 (pod-1): trainer ("),
        (HETER_SERVER, "pserver 0 (pod-2): pserver ("),
        (HETER + 1, "heter worker 1 (pod-4): heter worker ("),
    ],
)
def test_a_killed_process_of_each_role_ends_all_members_and_is_named(job: HeterJob, launcher: int, named: str) -> None:
    job.start(flags=command(job, "signal.pause()"))
    until(lambda: sum("reached" in name for name in left(job)) == 2, what=job.stderr())
    job.kill(launcher, "program.py")
    assert job.codes() == [137 if rank == launcher else 69 for rank in range(SIZE)], job.stderr()
    for rank in range(SIZE):
        assert named in job.termination(rank)
        assert "SIGKILL" in job.termination(rank)
    shown = job.shown().splitlines()
    assert [line.split("  ")[0] for line in shown[1:]] == [
        *("trainer 0", "trainer 1", "pserver 0", "heter worker 0", "heter worker 1"),
    ]
    assert job.nothing_left()


def test_after_the_death_of_a_heter_worker_all_processes_start_again(job: HeterJob) -> None:
    again = """
        if os.environ["LAUNCHER_GENERATION"] == "0":
            leave("first")
            signal.pause()
    """
    job.start(flags=command(job, again), LAUNCHER_MAX_RESTARTS="1")
    until(lambda: sum("first" in name for name in left(job)) == 2, what=job.stderr())
    job.kill(HETER, "program.py")
    assert job.codes() == [0] * SIZE, job.stderr()
    assert "heter worker 0 (pod-3): heter worker (" in job.stderr(0)
    assert "all processes of the job are restarted" in job.stderr(0)


def test_a_lost_launcher_of_a_heter_worker_is_named(job: HeterJob) -> None:
    job.start(flags=command(job, "signal.pause()"))
    until(lambda: sum("reached" in name for name in left(job)) == 2, what=job.stderr())
    job.launchers[HETER].kill()
    assert job.codes() == [76, 69, 69, 137, 69], job.stderr()
    assert "heter worker 0 (pod-3): heter worker 0 (pod pod-3) was lost" in job.termination(1)


def test_missing_heter_workers_are_named(job: HeterJob) -> None:
    job.start(*range(HETER), flags=command(job))
    said = "3 of 5 have joined (missing: heter worker 0, heter worker 1)"
    until(lambda: said in job.stderr(0), what="the hub says who is missing")
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes() == [143] * 3, job.stderr()


def test_no_role_waits_for_a_heter_worker_that_has_failed_for_good(job: HeterJob) -> None:
    flags = command(job)
    job.start(*range(HETER), flags=flags)
    job.start(HETER, flags=flags, LAUNCHER_SECRET_FILE=str(job.folder / "missing"))
    assert job.codes(30) == [71, 71, 71, 78], job.stderr()
    for rank in range(HETER):
        assert "the heter workers have failed for good: exit code 78" in job.termination(rank)
