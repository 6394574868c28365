"""The quick start's programs resume after the last complete pass, as described in docs/resume.md."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.jobs import JOB, Job
from tests.support.passes import history
from tests.wheels.outcome import PASSES, PROGRAMS, WITHIN, accuracy, assert_models, log

DIES = str(PROGRAMS / "dies.py")
EXACTLY, ABOUT = 0.00001, 0.03  # see the README of the quick start, for collective.py and for ps.py
_GENERATION = re.compile(r"^==== .* generation \d+, .* ====$", re.MULTILINE)
_LOSS = re.compile(r"^Pass=(\d+) .* loss=([\d.]+)", re.MULTILINE)
_SEEN = re.compile(r"^seen .* least=(\d+) most=(\d+) ", re.MULTILINE)


def generations(job: Job, rank: int) -> list[str]:
    """Return the output of a trainer in each generation."""
    return _GENERATION.split(log(job, rank))[1:]


def losses(said: str) -> dict[int, float]:
    """Return the loss of each pass on the training reviews."""
    return {int(number): float(loss) for number, loss in _LOSS.findall(said)}


def alone(python: str, reviews: Path, output: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program on one shard, without a launcher."""
    return subprocess.run(
        [python, *words, f"--data={reviews / JOB / '0' / 'data'}"],
        cwd=reviews / JOB / "quick_start",
        env={"PATH": os.environ["PATH"], "LAUNCHER_SAVE_DIR": str(output), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def again(job: Job, *words: str) -> None:
    """Run the same job again, as if it had died just before its mark of completion."""
    (job.output / ".launcher" / "job-1" / "complete").unlink()
    job.start(flags=("--", *words))
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()


def assert_goes_on_after_a_kill(job: Job, python: str, program: str) -> None:
    """A trainer dies in pass 2. The job resumes and trains to its last pass."""
    job.environment["LAUNCHER_MAX_RESTARTS"] = "3"
    job.start(flags=("--", python, DIES, "1", "batch", "2", program, f"--passes={PASSES}"))
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()
    assert job.nothing_left()
    assert [one["after_pass"] for one in history(job)] == [None, 1]
    assert_models(job, PASSES)
    for rank in range(job.size):
        before, after = generations(job, rank)
        assert f"resumes with pass 2, from the model of {job.output}/pass-00001\n" in after
        assert list(losses(after)) == [2, 3, 4]
        assert losses(after)[2] < losses(before)[1]  # new weights would begin with a higher loss
        assert _SEEN.findall(after) == [("3", "3")]


def test_collective_training_resumes_after_a_kill_and_ends_with_the_model_of_an_undisturbed_run(
    job: Job, paddle_3: str, loss_of_one: float
) -> None:
    job.environment["LAUNCHER_MODE"] = "collective"
    assert_goes_on_after_a_kill(job, paddle_3, "collective.py")
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one, abs=EXACTLY)


def test_training_with_servers_resumes_after_a_kill_and_again_after_all_passes(
    job: Job, paddle_2: str, loss_of_one_node: float
) -> None:
    job.environment["LAUNCHER_MODE"] = "ps"
    assert_goes_on_after_a_kill(job, paddle_2, "ps.py")
    trained = accuracy(log(job, 0))[1]
    assert trained == pytest.approx(loss_of_one_node, abs=ABOUT)
    again(job, paddle_2, "ps.py", f"--passes={PASSES}")
    for rank in range(job.size):
        said = generations(job, rank)[-1]
        assert f"all {PASSES} passes are there" in said
        assert not losses(said)
        assert _SEEN.findall(said) == [("0", "0")]
    assert accuracy(generations(job, 0)[-1])[1] == pytest.approx(trained, abs=ABOUT)


def test_a_program_with_all_passes_evaluates_the_last_pass(reviews: Path, paddle_3: str, tmp_path: Path) -> None:
    trained = alone(paddle_3, reviews, tmp_path, "collective.py", "--passes=1")
    last = tmp_path / "pass-00000"
    loaded = alone(paddle_3, reviews, tmp_path / "other", "collective.py", "--passes=1", LAUNCHER_RESUME_DIR=str(last))
    assert (trained.returncode, loaded.returncode) == (0, 0)
    assert f"all 1 passes are there: nothing is left to train after {last}\n" in loaded.stdout
    assert not losses(loaded.stdout)
    assert _SEEN.findall(loaded.stdout) == [("0", "0")]
    assert accuracy(loaded.stdout) == accuracy(trained.stdout)
    assert not (tmp_path / "other").exists()


def test_a_pass_whose_save_is_cut_short_does_not_count(reviews: Path, paddle_3: str, tmp_path: Path) -> None:
    """An incomplete pass is not used, even if it replaces a complete pass."""
    older = tmp_path / "pass-00001"
    older.mkdir()
    (older / "done").touch()
    killed = alone(paddle_3, reviews, tmp_path, DIES, "0", "save", "1", "collective.py", "--passes=2")
    assert killed.returncode == -9
    assert (tmp_path / "pass-00000" / "done").exists()
    assert [path.name for path in older.iterdir()] == ["model.pdparams"]


def test_a_folder_that_is_no_pass_is_refused(reviews: Path, paddle_3: str, tmp_path: Path) -> None:
    refused = alone(paddle_3, reviews, tmp_path, "collective.py", LAUNCHER_RESUME_DIR="/volume/best")
    assert refused.returncode == 1
    assert refused.stderr.endswith("'/volume/best': expected a folder pass-<number>, as in output/pass-00003\n")
