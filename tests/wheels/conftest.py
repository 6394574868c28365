"""Fixtures for the tests with the real Paddle: two Pythons with Paddle, and the quick start on a volume."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.jobs import JOB, Job, fresh, make_volume
from tests.support.nodes import Nodes
from tests.wheels.outcome import EXAMPLES, PASSES, WITHIN, accuracy, log


def _python(variable: str, version: str) -> str:
    """Return the absolute path of a virtual environment's Python. Keep the link, so that its packages are found."""
    given = os.environ.get(variable)
    if not given:
        pytest.fail(f"{variable} must name a Python that has Paddle {version}: `make test-paddle` makes one", False)
    return os.path.abspath(given)


@pytest.fixture(scope="session")
def paddle_2() -> str:
    """Return a Python with Paddle 2.6.2."""
    return _python("PADDLE_2", "2.6.2")


@pytest.fixture(scope="session")
def paddle_3() -> str:
    """Return a Python with Paddle 3.3.1."""
    return _python("PADDLE_3", "3.3.1")


@pytest.fixture(scope="session")
def paddle_3_0() -> str:
    """Return a Python with Paddle 3.0.0, the last version with parameter servers. Skip the test without one."""
    if not os.environ.get("PADDLE_3_0"):
        pytest.skip("PADDLE_3_0 is not set: a Python that has Paddle 3.0.0")
    return _python("PADDLE_3_0", "3.0.0")


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the quick start's volume with the shards of three trainers. Tests must not write to it."""
    return make_volume(tmp_path_factory.mktemp("reviews"), lines=EXAMPLES)


@pytest.fixture(scope="session")
def loss_of_one(paddle_3: str, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the result of one process that learns from all shards, on the held-out reviews."""
    shards = [f"--data={reviews / JOB / str(number) / 'data'}" for number in range(3)]
    alone = subprocess.run(
        [paddle_3, "collective.py", f"--passes={PASSES}", *shards],
        cwd=reviews / JOB / "quick_start",
        env={"PATH": os.environ["PATH"], "LAUNCHER_SAVE_DIR": str(tmp_path_factory.mktemp("alone"))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return accuracy(alone.stdout)[1]


@pytest.fixture(scope="session")
def loss_of_one_node(paddle_2: str, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the result of one node with server and trainer, with all data in one shard."""
    folder = tmp_path_factory.mktemp("alone")
    with Nodes(1) as nodes:
        volume = make_volume(folder, nodes=1, lines=EXAMPLES)
        alone = Job(nodes, volume, folder, size=1, LAUNCHER_MODE="ps")
        alone.start(flags=("--", paddle_2, "ps.py", f"--passes={PASSES}"))
        assert alone.codes(WITHIN) == [0], alone.stderr()
    return accuracy(log(alone, 0))[1]


@pytest.fixture
def job(three_nodes: Nodes, reviews: Path, tmp_path: Path) -> Job:
    """Yield the quick start on three nodes, on its own volume."""
    return Job(three_nodes, fresh(reviews, tmp_path), tmp_path)


@pytest.fixture
def small_job(three_nodes: Nodes, tmp_path: Path) -> Job:
    """Yield two nodes without a volume."""
    return Job(three_nodes, None, tmp_path, size=2)
