"""Real Paddle in real pods: the quick start, with Paddle's packages mounted from this host rather than in an image.

E2E_PADDLE_2 and E2E_PADDLE_3 name the site-packages folders that have Paddle 2.6.2 and 3.3.1.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cluster import SIZE, Json
from tests.e2e.training import Training
from tests.paddle.outcome import accuracy, assert_seen

IMAGE_PYTHON = "python3.11"  # of the pods' image; compiled packages fit no other
PASSES = 2


@pytest.mark.parametrize(
    ("variable", "program", "mode"),
    [("E2E_PADDLE_2", "ps.py", "ps"), ("E2E_PADDLE_3", "collective.py", "collective")],
    ids=["by parameter servers", "collectively"],
)
def test_three_pods_train_the_quick_start(training: Training, variable: str, program: str, mode: str) -> None:
    packages = packages_of(variable)

    def with_paddle(job: Json) -> None:
        pod = job["spec"]["template"]["spec"]
        pod["volumes"].append({"name": "paddle", "hostPath": {"path": str(packages)}})
        (container,) = pod["containers"]
        container["volumeMounts"].append({"name": "paddle", "mountPath": "/paddle", "readOnly": True})
        python = ["env", "PYTHONPATH=/paddle", "python3"]  # not for the launcher, which has packages of its own
        container["command"] = ["paddle-launcher", "run", "--", *python, program, f"--passes={PASSES}"]

    training.submit(change=with_paddle, LAUNCHER_MODE=mode).until_complete()
    assert training.exits() == [0] * SIZE
    assert training.passes_done() == PASSES
    logs = [(training.output / f"node_{rank}" / "train.log").read_text() for rank in range(SIZE)]
    for rank, log in enumerate(logs):
        assert_seen(log, rank, training.output.parent, PASSES)
    right, _ = accuracy(logs[0])
    assert right > 0.6  # of a model that knows nothing: 0.5


def packages_of(variable: str) -> Path:
    """The folder that the variable names, where there is one that the pods can use."""
    packages = Path(os.environ.get(variable, ""))
    if packages == Path():
        pytest.skip(f"{variable} is not set: it names the site-packages folder of a Python that has Paddle")
    if packages.parent.name != IMAGE_PYTHON:
        pytest.skip(f"{variable}: {packages} is of another Python than the pods' {IMAGE_PYTHON}")
    assert (packages / "paddle").is_dir(), f"{variable}: no Paddle in {packages}"
    return packages
