"""A pod with few resources works, or ends with a cause that names what is missing. `make floor` runs all scenarios."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support import floor
from tests.support.jobs import Job
from tests.support.verdicts import first_sentence

needs_groups = pytest.mark.skipif(not floor.supports("pids=40"), reason="control groups cannot be made here")


@pytest.fixture(autouse=True)
def _groups() -> Iterator[None]:
    yield
    floor.remove_groups()


def limited(job: Job, *limits: str) -> Job:
    for limit in limits:
        if not floor.supports(limit):
            pytest.skip(f"{limit} cannot be set here")
    job.program = (*floor.command(*limits), "-m", "launcher")
    return job


@needs_groups
def test_the_group_of_a_program_that_is_starting_is_kept() -> None:
    group = floor.group("pids", os.getpid())
    group.mkdir()
    try:
        floor.remove_groups()
        assert group.exists()
    finally:
        group.rmdir()


@pytest.mark.parametrize("limit", floor.LIMITS)
def test_a_job_is_complete_under_each_limit(job: Job, limit: str) -> None:
    assert limited(job, limit).start().codes() == [0, 0, 0], job.stderr()
    assert job.passes() == ["pass-00000", "pass-00001"]
    assert job.nothing_left()


def test_a_job_restarts_and_is_complete_under_all_limits(job: Job) -> None:
    limited(job, *floor.LIMITS).start_in_a_pass(LAUNCHER_MAX_RESTARTS="1")
    job.kill(1, "paddle_trainer")
    job.release()
    assert job.codes(60) == [0, 0, 0], job.stderr()
    assert job.nothing_left()


def test_a_failure_under_all_limits_is_named_as_without_them(job: Job) -> None:
    limited(job, *floor.LIMITS).start_in_a_pass()
    job.kill(1, "paddle_pserver_main")
    assert job.codes() == [69, 137, 69], job.stderr()
    assert "rank 1 (pod-1): pserver" in job.termination(0)
    assert first_sentence(job.output).startswith("The job failed: rank 1 (pod pod-1): pserver")
    assert job.nothing_left()


def fill(job: Job, rank: int) -> None:
    """Let this member start no process and no thread any more."""
    (floor.group("pids", job.launchers[rank].pid) / "pids.max").write_text("1")


@needs_groups
def test_a_training_is_complete_although_no_process_and_no_thread_can_be_started_any_more(job: Job) -> None:
    limited(job, "pids=40").start_in_a_pass()
    for rank in range(3):
        fill(job, rank)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.passes() == ["pass-00000", "pass-00001"]
    for rank in range(3):
        assert job.status(rank)["phase"] == "complete"
        assert "exit code 0" in job.termination(rank)


@needs_groups
def test_a_restart_without_a_free_process_ends_the_job_and_names_the_limit(job: Job) -> None:
    limited(job, "pids=40").start_in_a_pass(LAUNCHER_MAX_RESTARTS="1")
    fill(job, 1)
    job.kill(1, "paddle_trainer")
    assert job.codes() == [69, 126, 69], job.stderr()
    for rank in range(3):
        assert "the pid limit of this pod is used up (pids.max = 1)" in job.termination(rank)
        assert "rank 1 (pod-1)" in job.termination(rank)
    sentence = first_sentence(job.output)
    assert sentence.startswith("The job failed: rank 1 (pod pod-1): ")
    assert "the pid limit of this pod is used up (pids.max = 1)" in sentence
    assert job.nothing_left()


@needs_groups
def test_a_pod_that_cannot_even_start_its_threads_says_so(job: Job) -> None:
    limited(job, "pids=3")
    job.environment["LAUNCHER_PEER_TIMEOUT"] = "2"
    job.start(1)
    assert job.code(1) == 74, job.stderr()
    assert "no thread can be started: the pid limit of this pod is used up (pids.max = 3)" in job.termination(1)
    assert job.nothing_left()


@pytest.mark.parametrize("limit", [7, 10, 13, 18])
def test_pods_without_file_descriptors_say_so(job: Job, limit: int) -> None:
    limited(job, f"nofile={limit}")
    job.environment["LAUNCHER_PEER_TIMEOUT"] = "2"
    codes = job.start().codes()
    assert set(codes) <= {69, 74, 75, 126}, job.stderr()
    messages = [job.termination(rank) for rank in range(3)]
    assert all(messages), job.stderr()
    assert any(f"no file descriptor is left (RLIMIT_NOFILE = {limit})" in message for message in messages), messages
    assert job.nothing_left()
