"""Two gangs that train into one folder, as after a double submission: one trains, the other waits for its end."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.jobs import Job, until
from tests.support.nodes import Nodes
from tests.support.passes import PASSES, SIX, TRAINER, history, log, until_generation, until_saved

WAITS = "for the end of another gang that trains into this folder"
SHORT = {"LAUNCHER_SILENCE": "15", "LAUNCHER_STOP_GRACE": "1"}  # so short that the test can wait for the expiry
HELD = "pass-1"  # the gate at which the first job waits until the second job waits


@pytest.fixture
def elsewhere() -> Iterator[Nodes]:
    """Yield a second network, so that the two gangs share only the volume."""
    with Nodes(3) as nodes:
        yield nodes


@pytest.fixture
def first(job: Job) -> Job:
    """Return a job that waits at a gate after its first pass."""
    job.environment |= {"LAUNCHER_MAX_RESTARTS": "3"}
    return job.hold(HELD)


@pytest.fixture
def second(first: Job, elsewhere: Nodes, tmp_path: Path) -> Job:
    folder = tmp_path / "second"
    folder.mkdir()
    job = Job(elsewhere, first.volume, folder)
    job.environment |= first.environment
    return job


def until_waiting(first: Job, second: Job) -> None:
    """Start the second job while the first job trains, and wait until the second job waits."""
    until_saved(first, 0)
    second.start(flags=SIX)
    until(lambda: WAITS in second.stderr(0), what=second.stderr())


def test_a_job_that_was_submitted_twice_trains_once(first: Job, second: Job) -> None:
    first.start(flags=SIX)
    until_waiting(first, second)
    assert "submitted twice" in second.stderr(0)
    assert not any(second.find(rank, TRAINER) for rank in range(3))
    assert {first.status(rank)["phase"] for rank in range(3)} == {"training"}, "the files are of the one that trains"
    first.release()
    assert first.codes() == [0, 0, 0], first.stderr()
    assert second.codes() == [0, 0, 0], second.stderr()
    assert first.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert re.findall(r"Pass=(\d+)", log(first, 0)) == [str(number) for number in range(PASSES)]
    assert len(history(first)) == 1
    assert "stops writing" not in first.stderr()


def test_one_of_two_jobs_that_start_together_waits(first: Job, second: Job) -> None:
    first.start(flags=SIX)
    second.hold(HELD).start(flags=SIX)
    until(lambda: WAITS in first.stderr(0) + second.stderr(0))
    first.release()
    second.release()
    assert first.codes() + second.codes() == [0] * 6, first.stderr() + second.stderr()
    assert re.findall(r"Pass=(\d+)", log(first, 0)) == [str(number) for number in range(PASSES)]


def test_another_job_of_the_same_name_waits_until_the_earlier_job_has_ended(first: Job, second: Job) -> None:
    """This is like a job that is deleted and created again while its pods still save."""
    second.environment["LAUNCHER_JOB_ID"] = "job-2"
    first.start(flags=SIX)
    until_waiting(first, second)
    assert "give this job another name" in second.stderr(0)
    assert not list(first.output.glob("earlier-*")), "the passes of the first job were moved while it ran"
    for launcher in first.launchers.values():
        launcher.terminate()
    assert first.codes() == [143, 143, 143]
    assert second.codes() == [0, 0, 0], second.stderr()
    assert list(first.output.glob("earlier-*/pass-00000"))
    assert [one["after_pass"] for one in history(second)] == [None]
    assert second.passes() == [f"pass-{number:05d}" for number in range(PASSES)]


def test_a_gang_whose_output_was_deleted_ends_when_another_job_begins_there(first: Job, second: Job) -> None:
    """Like a user who starts anew with an empty folder, but forgets the job that still trains into it."""
    second.environment["LAUNCHER_JOB_ID"] = "job-2"
    first.start(flags=SIX)
    until_waiting(first, second)
    holder = "job-1"
    while holder == "job-1":  # the first gang takes its lease again if the second one has not looked meanwhile
        shutil.rmtree(first.output, ignore_errors=True)
        lease = first.output / ".launcher" / ".leases" / "0"
        until(lease.exists, what=second.stderr())
        holder = json.loads(lease.read_text())["job"]
    assert sorted(first.codes()) == [69, 69, 74], first.stderr()
    assert "job job-2, has taken over the folder" in first.stderr(0)
    assert second.codes(60) == [0, 0, 0], second.stderr()
    assert second.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert (second.output / ".launcher" / "job-2" / "complete").exists()


def attempts(job: Job) -> list[dict[str, Any]]:
    """Return what attempts.json says about the generations of the job. Another thread than for job.json writes it."""
    found: list[dict[str, Any]] = json.loads((job.output / ".launcher/job-1/attempts.json").read_text())["generations"]
    return found


@pytest.mark.slow
def test_a_waiting_gang_resumes_after_the_last_pass_of_a_killed_gang(first: Job, second: Job) -> None:
    """All launchers of the gang are killed at once, so the lease is not released. Generation numbers continue."""
    for each in (first, second):
        each.environment |= SHORT
    first.start(flags=SIX)
    until_waiting(first, second)
    first.kill(1, TRAINER)
    until_generation(first, 1)
    until(lambda: len(attempts(first)) == 2, what=first.stderr())
    for launcher in first.launchers.values():
        launcher.kill()
    assert first.nothing_left()
    assert second.codes(90) == [0, 0, 0], second.stderr()
    assert attempts(first) == history(second)
    assert [one["number"] for one in attempts(first)] == [0, 1, 2]
    assert attempts(first)[2]["after_pass"] == 0
    assert second.passes() == [f"pass-{number:05d}" for number in range(PASSES)]


@pytest.mark.slow
def test_a_frozen_gang_ends_after_another_gang_has_taken_its_place(first: Job, second: Job) -> None:
    """This is like paused virtual machines: the gang can neither end nor write."""
    for each in (first, second):
        each.environment |= SHORT
    first.start(flags=SIX)
    until_saved(first, 0)
    frozen = [psutil.Process(pid) for pid in first.nodes.inside()]
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    second.hold(HELD).start(flags=SIX)
    until(lambda: second.find(0, TRAINER), 90, second.stderr())
    for process in frozen:
        process.send_signal(signal.SIGCONT)
    codes = first.codes(30)
    assert sorted(codes) == [69, 69, 74], first.stderr()
    assert "has taken over the folder" in first.stderr(0)
    second.release()
    assert second.codes(60) == [0, 0, 0], second.stderr()
    assert second.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert re.findall(r"Pass=(\d+)", log(first, 0)) == [str(number) for number in range(PASSES)]


@pytest.mark.parametrize(
    ("stopped", "restarts"),
    [((0, 1, 2), "0"), ((0,), "0"), ((1,), "0"), ((1, 0, 2), "3")],
    ids=["SIGTERM to all", "SIGTERM to the hub", "SIGTERM to another member", "SIGTERM to all, with restarts"],
)
def test_a_gang_waits_until_the_slowest_member_has_ended(
    first: Job, second: Job, stopped: tuple[int, ...], restarts: str
) -> None:
    """This is like a member that still saves after all other members have ended."""
    second.environment["LAUNCHER_JOB_ID"] = "job-2"
    first.environment |= {"LAUNCHER_MAX_RESTARTS": restarts, "LAUNCHER_STOP_GRACE": "5"}
    first.start(0, 1, flags=SIX)
    first.start(2, flags=SIX, STANDIN_DEAF="1")
    until_waiting(first, second)
    for rank in stopped:
        first.launchers[rank].terminate()
        until(lambda: all(first.status(member)["phase"] != "training" for member in range(3)), what="all members know")
    until(lambda: second.find(0, TRAINER), 60, second.stderr())
    assert not first.nodes.inside(), "two gangs run"
    assert second.codes(60) == [0, 0, 0], second.stderr()


def test_after_a_lost_hub_the_next_run_does_not_wait_for_the_lease(first: Job) -> None:
    """The remaining members release the lease before the whole job starts again."""
    first.environment["LAUNCHER_MAX_RESTARTS"] = "0"
    first.start(flags=SIX)
    until_saved(first, 0)
    first.launchers[0].kill()
    assert sorted(first.codes()) == [69, 76, 137]
    attempts = json.loads((first.output / ".launcher/job-1/attempts.json").read_text())
    assert attempts["generations"][-1]["first_cause"]["kind"] == "lost", "its hub could not say that"
    assert first.release().start(flags=SIX).codes() == [0, 0, 0], first.stderr()
    assert WAITS not in first.stderr()
