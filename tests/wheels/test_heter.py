"""Heter workers of Paddle 2.6.2 and 3.0.0: the example on nodes with one role each. docs/heter.md has the figures."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import Exit
from tests.support.jobs import JOB, until
from tests.support.nodes import Nodes
from tests.support.paths import REPOSITORY
from tests.support.roles_job import HETER, HETER_ROLES, HETER_SERVER, HeterJob
from tests.wheels.outcome import WITHIN, process

EXAMPLE = REPOSITORY / "examples" / "heter"
PASSES, BATCHES = 10, 40  # batches of 50 of the 4000 lines, in the shards of two trainers
LEARNED = 0.25  # a cost that no model reaches that has not learned the words: it begins with 0.69
ENDED_WITHIN = 2.0  # seconds from the death of a process to the end of all launchers
SIZE = sum(HETER_ROLES.values())


@pytest.fixture
def heter_job(tmp_path: Path) -> Iterator[HeterJob]:
    source, volume = tmp_path / "source", tmp_path / "volume"
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", source], check=True)
    folders = ["--data", source / "data", "--config", EXAMPLE, "--out", volume / JOB]
    shard = [sys.executable, "-m", "launcher", "shard", *folders, "--count", "2", "--anywhere"]
    subprocess.run([*map(str, shard)], check=True, capture_output=True)
    with Nodes(SIZE) as nodes:
        yield HeterJob(nodes, volume, tmp_path, SIZE, TRAIN_CONFIG_DIR="heter", PYTHONPATH=str(REPOSITORY))


def costs(job: HeterJob, worker: int) -> list[float]:
    """Return the costs that a heter worker has printed."""
    log = job.output / f"heter_{worker}" / "heter.log"
    return [float(cost) for cost in re.findall(r"loss=([\d.]+)", log.read_text() if log.exists() else "")]


@pytest.mark.parametrize("python", ["paddle_2", "paddle_3_0"])
def test_trainers_servers_and_heter_workers_train_together(
    heter_job: HeterJob, python: str, request: pytest.FixtureRequest
) -> None:
    job = heter_job
    job.start(flags=("--", request.getfixturevalue(python), "train.py", f"--passes={PASSES}"))
    assert job.codes(WITHIN) == [0] * SIZE, job.stderr()
    assert job.nothing_left()
    said = [costs(job, worker) for worker in range(2)]
    # Both workers train one model: the slower one may begin with what the other has learned.
    assert max(each[0] for each in said) > 1.5 * LEARNED
    for each in said:
        assert each[-1] < LEARNED
        assert len(each) == PASSES * BATCHES // 20
    for trainer in range(2):
        assert (job.output / f"node_{trainer}" / "train.log").read_text().count("Pass=") == PASSES


@pytest.mark.parametrize(
    ("launcher", "role", "named"),
    [
        (1, "TRAINER", "trainer 1 (pod-1): trainer ("),
        (HETER_SERVER, "PSERVER", "pserver 0 (pod-2): pserver ("),
        (HETER + 1, "HETER_TRAINER", "heter worker 1 (pod-4): heter worker ("),
    ],
)
def test_a_killed_process_of_each_role_ends_all_members_and_is_named(
    heter_job: HeterJob, paddle_2: str, launcher: int, role: str, named: str
) -> None:
    job = heter_job
    job.start(flags=("--", paddle_2, "train.py", "--passes=100000"))
    until(lambda: all(costs(job, worker) for worker in range(2)), WITHIN, job.stderr())
    process(job, launcher, role).kill()
    killed = time.monotonic()
    assert job.codes(WITHIN) == [137 if rank == launcher else Exit.PEER_FAILED for rank in range(SIZE)], job.stderr()
    print(f"{role}: all launchers have ended after {time.monotonic() - killed:.2f} s")
    for rank in range(SIZE):
        if rank != launcher:
            assert named in job.termination(rank)
            assert "SIGKILL" in job.termination(rank)
    assert job.nothing_left()


def test_after_the_death_of_a_heter_worker_all_train_again(heter_job: HeterJob, paddle_2: str) -> None:
    job = heter_job
    job.start(flags=("--", paddle_2, "train.py", f"--passes={PASSES}"), LAUNCHER_MAX_RESTARTS="1")
    until(lambda: all(costs(job, worker) for worker in range(2)), WITHIN, job.stderr())
    process(job, HETER, "HETER_TRAINER").kill()
    assert job.codes(WITHIN) == [0] * SIZE, job.stderr()
    assert "heter worker 0 (pod-3): heter worker (" in job.stderr(0)
    assert all(costs(job, worker)[-1] < LEARNED for worker in range(2))
    assert job.nothing_left()
