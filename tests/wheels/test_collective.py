"""Collective training with gloo: the quick start, in which trainers average their gradients."""

from __future__ import annotations

import pytest

from tests.support.jobs import Job
from tests.wheels.outcome import (
    FOR_EVER,
    PASSES,
    PROGRAMS,
    WITHIN,
    accuracy,
    assert_each_shard_was_seen,
    assert_models,
    listens,
    log,
    process,
)

TOLERANCE = 0.00001  # see the README of the quick start


@pytest.mark.parametrize("version", ["paddle_2", "paddle_3"])
def test_three_nodes_learn_what_one_process_learns(
    job: Job, version: str, loss_of_one: float, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue(version)
    job.start(flags=("--", python, "collective.py", f"--passes={PASSES}"))
    process(job, 2, "TRAINER")
    first = process(job, 0, "TRAINER")
    store = int(first.environ()["PADDLE_MASTER"].rpartition(":")[2])
    assert listens(first, store) or "does not listen within" in job.stderr(0)  # otherwise a retry takes 3 s
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()
    assert job.nothing_left()
    assert_models(job, PASSES)
    assert_each_shard_was_seen(job, PASSES)
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one, abs=TOLERANCE)


def test_a_killed_trainer_ends_all_members_and_is_named(job: Job, paddle_3: str) -> None:
    job.start(flags=("--", paddle_3, "collective.py", FOR_EVER)).until_training(WITHIN)
    process(job, 1, "TRAINER").kill()
    assert job.codes(WITHIN) == [69, 137, 69], job.stderr()
    for rank in (0, 2):
        assert "rank 1 (pod-1): trainer (" in job.termination(rank)
        assert "was killed by SIGKILL" in job.termination(rank)
    assert job.nothing_left()


def test_sigterm_to_one_launcher_ends_all_members(job: Job, paddle_3: str) -> None:
    job.start(flags=("--", paddle_3, "collective.py", FOR_EVER)).until_training(WITHIN)
    job.launchers[1].terminate()
    assert job.codes(WITHIN) == [69, 143, 69], job.stderr()
    assert "rank 1 (pod-1): got SIGTERM" in job.termination(0)
    assert job.nothing_left()


def test_the_code_is_that_of_the_program_that_fails_and_not_of_those_that_abort(small_job: Job, paddle_3: str) -> None:
    small_job.start(flags=("--", paddle_3, str(PROGRAMS / "sum_of_ranks.py"), "--without=1"))
    assert small_job.codes(WITHIN) == [69, 3], small_job.stderr()
    assert "rank 1 (pod-1): trainer (" in small_job.termination(0)
    assert "ended with exit code 3" in small_job.termination(0)
    assert small_job.nothing_left()
