"""`paddle-launcher why` shows where real trainers are, and does not disturb them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.jobs import Job
from tests.wheels.outcome import PASSES, WITHIN, accuracy, assert_models, log

EXACTLY = 0.00001


def asked_until_the_end(job: Job) -> list[str]:
    """Ask again and again while the job trains. Return all answers."""
    answers = []
    command = [sys.executable, "-m", "launcher", "why"]
    environment = {"LAUNCHER_WORKDIR": str(job.folder / "work-0")}
    while any(launcher.poll() is None for launcher in job.launchers.values()):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0:
            answers.append(done.stdout)
    return answers


def test_collective_training_has_the_same_model_although_it_was_asked_all_the_time(
    job: Job, paddle_3: str, loss_of_one: float
) -> None:
    job.environment["LAUNCHER_MODE"] = "collective"
    job.start(flags=("--", paddle_3, "collective.py", f"--passes={PASSES}"))
    answers = asked_until_the_end(job)
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one, abs=EXACTLY)
    assert any("collective.py:" in answer for answer in answers), answers


def test_training_with_servers_completes_although_it_was_asked_all_the_time(job: Job, paddle_2: str) -> None:
    job.environment["LAUNCHER_MODE"] = "ps"
    job.start(flags=("--", paddle_2, "ps.py", f"--passes={PASSES}"))
    answers = asked_until_the_end(job)
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()
    assert_models(job, PASSES)
    assert any("trainer" in answer and "pserver" in answer for answer in answers), answers
