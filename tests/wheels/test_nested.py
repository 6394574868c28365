"""`-- python -m paddle.distributed.launch train.py`: Paddle's launcher runs as a child of this launcher."""

from __future__ import annotations

from functools import partial

import psutil
import pytest

from tests.support.jobs import Job, until
from tests.wheels.outcome import PASSES, PROGRAMS, WITHIN, accuracy, assert_each_shard_was_seen, assert_models, log

ENDS = str(PROGRAMS / "ends.py")


def start(job: Job, python: str, *words: str, **variables: str) -> Job:
    job.environment |= variables
    return job.start(flags=("--", python, "-m", "paddle.distributed.launch", *words))


def test_all_nodes_start_as_one_job(job: Job, paddle_3: str, loss_of_one: float) -> None:
    proxy = "http://127.0.0.1:9"  # with a proxy between nodes, Paddle's rendezvous has hung
    start(job, paddle_3, "collective.py", f"--passes={PASSES}", HTTP_PROXY=proxy, http_proxy=proxy)
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()
    assert job.nothing_left()
    assert_models(job, PASSES)
    assert_each_shard_was_seen(job, PASSES)
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one, abs=0.00001)


def test_all_nodes_start_as_one_job_with_paddle_2(small_job: Job, paddle_2: str) -> None:
    start(small_job, paddle_2, str(PROGRAMS / "sum_of_ranks.py"))
    assert small_job.codes(WITHIN) == [0, 0], small_job.stderr()
    for rank in range(2):
        assert f"rank {rank} of 2: the sum is 3" in (small_job.folder / f"stdout-{rank}").read_text()
    assert small_job.nothing_left()


@pytest.mark.parametrize("version", ["paddle_2", "paddle_3"])
@pytest.mark.parametrize(("how", "code"), [("3", 3), ("kill", 137)])
def test_the_exit_code_of_a_worker_passes_through_both_launchers(
    small_job: Job, version: str, how: str, code: int, request: pytest.FixtureRequest
) -> None:
    start(small_job, request.getfixturevalue(version), ENDS, "1", how)
    assert small_job.codes(WITHIN) == [69, code], small_job.stderr()
    assert "rank 1 (pod-1): trainer (" in small_job.termination(0)
    assert small_job.nothing_left()


def test_workers_that_ignore_sigterm_end_together_with_the_launcher(small_job: Job, paddle_3: str) -> None:
    start(small_job, paddle_3, ENDS, "0", "stubborn", LAUNCHER_STOP_GRACE="1")
    workers = [until(partial(_worker, small_job, rank), WITHIN) for rank in range(2)]
    small_job.launchers[0].terminate()
    assert small_job.codes(WITHIN) == [143, 69], small_job.stderr()
    assert small_job.nothing_left()
    assert not any(worker.is_running() for worker in workers)


def _worker(job: Job, rank: int) -> psutil.Process | None:
    """Return the worker of a node after it has printed its pid. From then on, it ignores SIGTERM."""
    said = (job.folder / f"stdout-{rank}").read_text()
    return psutil.Process(int(said.split(" is worker ")[1].split()[0])) if " is worker " in said else None
