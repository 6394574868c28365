"""Jobs of the quick start whose number of trainers changes: each sample counts once, and the model is as good."""

from __future__ import annotations

import re
import signal
from collections import defaultdict

import pytest

from tests.support.jobs import Job, until
from tests.support.passes import history, log, saved
from tests.wheels.outcome import PASSES, PROGRAMS, WITHIN, accuracy, assert_models

EXACTLY, ABOUT = 0.00001, 0.03  # see the README of the quick start, for collective.py and for ps.py
_GENERATION = re.compile(r"^==== .* generation (\d+), .* ====$", re.MULTILINE)
_PASS = re.compile(r"^Pass=(\d+) Batch=\d+ samples=(\d+) ", re.MULTILINE)


def trained(job: Job) -> dict[int, dict[int, list[int]]]:
    """Return how many samples each trainer has learned from, by pass and by generation."""
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank in range(job.size):
        _, *parts = _GENERATION.split(log(job, rank))
        for generation, said in zip(parts[::2], parts[1::2], strict=True):
            for number, samples in _PASS.findall(said):
                found[int(number)][int(generation)].append(int(samples))
    return found


def changes_its_size(job: Job, mode: str, python: str, program: str) -> None:
    """Train 5 passes with 2, 3, 2, 3 and 2 trainers. The job grows after a saved pass, and shrinks at once."""
    job.environment |= {
        "CONF_PADDLE_GRADIENT_NUM": "2:3",
        "GATES": str(job.gates),
        "LAUNCHER_MAX_RESTARTS": "3",
        "LAUNCHER_MODE": mode,
        "LAUNCHER_SETTLE": "2",
    }
    flags = ("--", python, str(PROGRAMS / "at_gates.py"), program, f"--passes={PASSES}")

    def start(*ranks: int) -> None:
        for rank in ranks:
            job.start(rank, flags=flags, POD_UID=f"uid-{rank}")

    def grow(newcomer: int, after: int, generation: int) -> None:
        waiting = job.stderr().count("a new member waits")
        start(newcomer)
        until(lambda: job.stderr().count("a new member waits") > waiting, WITHIN, job.stderr())
        job.release(f"pass-{after}")
        until(lambda: history(job)[-1]["number"] == generation, WITHIN, job.stderr())

    def shrink(gone: int, code: int, generation: int) -> None:
        job.launchers[gone].send_signal(signal.SIGTERM)
        assert job.code(gone, WITHIN) == code, job.stderr()
        until(lambda: history(job)[-1]["number"] == generation, WITHIN, job.stderr())

    job.hold(*(f"pass-{number}" for number in range(1, PASSES)))
    start(0, 1)
    until(lambda: saved(job, 0), WITHIN, job.stderr())
    grow(2, after=1, generation=1)
    job.release("pass-2")
    until(lambda: saved(job, 2), WITHIN, job.stderr())
    shrink(2, 143, generation=2)
    grow(2, after=3, generation=3)
    shrink(0, 143, generation=4)
    job.release()
    assert [job.code(rank, WITHIN) for rank in (1, 2)] == [0, 0], job.stderr()
    assert job.nothing_left()


def assert_each_sample_counts_once(job: Job) -> None:
    assert [one["trainers"] for one in history(job)] == [2, 3, 2, 3, 2]
    assert [one["after_pass"] for one in history(job)] == [None, 1, 2, 3, 3], "no saved pass is lost"
    assert_models(job, PASSES)
    folder = job.output.parent
    lines = sum((folder / str(shard) / "data" / "train.txt").read_bytes().count(b"\n") for shard in range(3))
    of_passes = trained(job)
    assert sorted(of_passes) == list(range(PASSES))
    for number, of_generations in of_passes.items():
        samples = of_generations[max(of_generations)]
        assert sum(samples) == lines, f"pass {number}: {samples}"


@pytest.mark.parametrize("version", ["paddle_2", "paddle_3"])
def test_collective_training_with_changing_sizes_learns_what_one_process_learns(
    job: Job, version: str, loss_of_one: float, request: pytest.FixtureRequest
) -> None:
    changes_its_size(job, "collective", request.getfixturevalue(version), "collective.py")
    assert_each_sample_counts_once(job)
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one, abs=EXACTLY)


def test_training_with_servers_and_changing_sizes_learns_what_one_node_learns(
    job: Job, paddle_2: str, loss_of_one_node: float
) -> None:
    changes_its_size(job, "ps", paddle_2, "ps.py")
    assert_each_sample_counts_once(job)
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one_node, abs=ABOUT)
