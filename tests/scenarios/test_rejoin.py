"""A launcher is lost or gets SIGTERM, together with its pod. The other members wait for a replacement pod."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.support.jobs import Job, until
from tests.support.passes import PASSES, SIX, TRAINER, history, log, until_generation, until_saved


@pytest.fixture
def waiting(job: Job) -> Job:
    """Return a job whose members wait for a replacement of a lost member."""
    job.environment |= {"LAUNCHER_MAX_RESTARTS": "3"}
    return job


def until_gathering(job: Job, *ranks: int) -> None:
    for rank in ranks:
        until(lambda: job.status(rank).get("phase") == "gathering", what=f"{job.status(rank)}\n{job.stderr()}")  # noqa: B023


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("gone", [0, 2])
def test_the_job_resumes_with_the_launcher_that_replaces_the_lost_one(waiting: Job, gone: int, number: int) -> None:
    job = waiting.hold("pass-2").start(flags=SIX)
    until_saved(job, 1)
    job.launchers[gone].send_signal(number)
    assert job.code(gone) == (137 if number == signal.SIGKILL else 143)
    others = [rank for rank in range(3) if rank != gone]
    until_gathering(job, *others)
    for rank in range(3):
        until(lambda: not job.find(rank, TRAINER), what="all trainers have ended")  # noqa: B023
    job.release().start(gone, flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    first, second = history(job)
    assert second["after_pass"] == 1
    assert first["ended"]
    assert first["first_cause"]["kind"] == ("lost" if number == signal.SIGKILL else "stopped")
    assert first["first_cause"]["pod"] == f"pod-{gone}"
    assert "LAUNCHER_REJOIN_TIMEOUT" in job.stderr(others[0])
    assert log(job, others[0]).count("Pass=") == PASSES, "no pass that was saved is trained again"
    assert job.nothing_left()


def test_members_that_wait_do_not_copy_again(waiting: Job) -> None:
    job = waiting.hold("pass-1").start(flags=SIX)
    until_saved(job, 0)
    copied = {path: path.stat().st_ino for path in (job.folder / "work-1" / "data").iterdir()}
    job.launchers[2].kill()
    job.code(2)
    until_gathering(job, 0, 1)
    (job.output.parent / "1").rename(job.folder / "away")
    job.release().start(2, flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert copied == {path: path.stat().st_ino for path in (job.folder / "work-1" / "data").iterdir()}


def test_the_job_waits_for_two_members_that_are_lost_together(waiting: Job) -> None:
    job = waiting.hold("pass-1").start(flags=SIX)
    until_saved(job, 0)
    for rank in (0, 1):
        job.launchers[rank].kill()
        job.code(rank)
    until_gathering(job, 2)
    job.release().start(0, 1, flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()


def test_the_job_waits_for_a_lost_member_until_the_deadline(waiting: Job) -> None:
    waiting.environment["LAUNCHER_REJOIN_TIMEOUT"] = "3"
    job = waiting.start_in_a_pass()
    job.launchers[2].kill()
    assert job.codes() == [75, 75, 137], job.stderr()
    waited = "waited 3 s (LAUNCHER_REJOIN_TIMEOUT) for the gang: 2 of 3 have joined (missing: rank 2)"
    assert waited in job.termination(0)
    assert job.nothing_left()


def test_without_a_rejoin_timeout_a_lost_launcher_ends_the_job_at_once(waiting: Job) -> None:
    waiting.environment["LAUNCHER_REJOIN_TIMEOUT"] = "0"
    job = waiting.start_in_a_pass()
    job.launchers[2].kill()
    assert job.codes() == [76, 69, 137], job.stderr()


def test_a_waiting_member_that_gets_sigterm_stops_and_names_the_missing_member(waiting: Job) -> None:
    job = waiting.start_in_a_pass()
    job.launchers[2].kill()
    until_gathering(job, 0, 1)
    for rank in (0, 1):
        job.launchers[rank].terminate()
    assert job.codes() == [143, 143, 137], job.stderr()
    assert "rank 2 (pod-2)" in job.termination(1)
    assert job.nothing_left()


def test_a_complete_job_does_not_wait_for_a_lost_member(waiting: Job) -> None:
    """The hub dies after all members have trained and the mark is written. The other members read the mark."""
    job = waiting.start(flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.start(2, flags=SIX).code(2) == 0


def test_a_paddle_2_or_3_program_resumes_with_the_new_address_of_the_lost_member(waiting: Job) -> None:
    """The roster has the new address."""
    program = waiting.folder / "program.py"
    program.write_text(
        """
import os, socket, time
if os.environ["PADDLE_TRAINER_ID"] == "0":
    listening = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])))
print("endpoints", os.environ["PADDLE_TRAINER_ENDPOINTS"], "generation", os.environ["LAUNCHER_GENERATION"], flush=True)
if os.environ["LAUNCHER_GENERATION"] == "0":
    time.sleep(600)
"""
    )
    job = waiting
    flags = ("--launcher-mode=collective", "--", sys.executable, str(program))
    job.start(flags=flags)
    for rank in range(3):
        until(lambda: (job.output / f"node_{rank}" / "train.log").exists() and "generation 0" in log(job, rank))  # noqa: B023
    job.launchers[2].kill()
    job.code(2)
    until_gathering(job, 0, 1)
    job.start(2, flags=flags)
    assert job.codes() == [0, 0, 0], job.stderr()
    until_generation(job, 1)
    assert all("generation 1" in log(job, rank) for rank in range(3))
