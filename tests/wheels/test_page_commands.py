"""Commands of the pages that need Paddle, as they are written there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.page_tests import run_by
from tests.support.paths import REPOSITORY, STANDIN
from tests.support.reader import Reader
from tests.wheels.outcome import PASSES, accuracy, assert_seen

LAST_PASS = f"pass-{PASSES - 1:05d}"
GOOD = 0.85  # of the held-out reviews; a model of one shard is right about 63 in 100


def reader(folder: Path, python: str) -> Reader:
    """Return a reader whose `python` and `paddle-launcher` are those of a virtual environment."""
    return Reader(folder, PATH=f"{os.path.dirname(python)}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.timeout(300)
def test_the_readme_trains_on_one_machine(tmp_path: Path, paddle_3: str) -> None:
    made = reader(tmp_path, paddle_3)
    (made.folder / "paddle-launcher").symlink_to(REPOSITORY)
    data, training = run_by("test_the_readme_trains_on_one_machine")
    made.follow(data)
    assert_trained(made.follow(training), made.folder / "my" / "demo" / "quick-start")
    assert (made.folder / "my" / "demo" / "quick-start" / "output" / "report.html").exists()


@pytest.mark.timeout(600)
def test_the_quick_start_trains_on_one_machine(tmp_path: Path, paddle_2: str) -> None:
    made = reader(tmp_path, paddle_2)
    (made.tools / "paddle").symlink_to(STANDIN / "paddle")
    (made.folder / "examples").symlink_to(REPOSITORY / "examples")
    data, trainings, alone = run_by("test_the_quick_start_trains_on_one_machine")
    made.follow(data)
    job = made.folder / "demo" / "quick-start"
    servers, collective, v0 = (replace(trainings, commands=f"{line}\n") for line in trainings.commands.splitlines())
    for one in (servers, collective):  # the page tells the reader to run one of them
        assert_trained(made.follow(one), job)
    made.follow(v0)
    assert (job / "output" / LAST_PASS / "done").exists()
    assert accuracy(made.follow(alone))[0] > GOOD


def assert_trained(printed: str, job: Path) -> None:
    """Check that each trainer saw its own shard once per pass, and that the model is good."""
    for rank in range(3):
        said = "".join(line.removeprefix(f"[{rank}] ") for line in printed.splitlines(True) if line[1:2] == str(rank))
        assert_seen(said, rank, job, PASSES)
        if rank == 0:
            assert accuracy(said)[0] > GOOD
    assert (job / "output" / LAST_PASS / "done").exists()
