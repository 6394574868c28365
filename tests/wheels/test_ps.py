"""Parameter servers of Paddle 2.6.2: the quick start on nodes with server and trainer, or with one role each."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from launcher.errors import Exit
from tests.support.jobs import Job, fresh
from tests.support.nodes import Nodes
from tests.support.roles_job import PSERVER, PSERVERS, TRAINERS, RolesJob
from tests.wheels.outcome import (
    FOR_EVER,
    PASSES,
    PROGRAMS,
    WITHIN,
    accuracy,
    assert_each_shard_was_seen,
    assert_models,
    assert_seen,
    listens,
    log,
    process,
)

TOLERANCE = 0.03  # see the README of the quick start


def start(job: Job, python: str, *words: str) -> Job:
    job.environment["LAUNCHER_MODE"] = "ps"
    return job.start(flags=("--", python, *words))


def test_three_nodes_learn_as_much_as_one_node_would(job: Job, paddle_2: str, loss_of_one_node: float) -> None:
    start(job, paddle_2, "ps.py", f"--passes={PASSES}")
    process(job, 2, "TRAINER")
    for rank in range(3):
        server = process(job, rank, "PSERVER")
        assert listens(
            server, int(server.environ()["PADDLE_PORT"])
        )  # before trainers start, which would crash otherwise
    assert job.codes(WITHIN) == [0, 0, 0], job.stderr()
    assert job.nothing_left()
    assert_models(job, PASSES)
    assert_each_shard_was_seen(job, PASSES)
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one_node, abs=TOLERANCE)


def test_nodes_with_one_role_each_learn_the_same(
    reviews: Path, paddle_2: str, loss_of_one_node: float, tmp_path: Path
) -> None:
    with Nodes(TRAINERS + PSERVERS) as nodes:
        job = RolesJob(nodes, fresh(reviews, tmp_path), tmp_path, TRAINERS + PSERVERS)
        job.start(flags=("--", paddle_2, "ps.py", f"--passes={PASSES}"))
        process(job, 0, "TRAINER")
        for launcher in range(PSERVER, job.size):
            server = process(job, launcher, "PSERVER")
            assert listens(server, int(server.environ()["PADDLE_PORT"]))
        assert job.codes(WITHIN) == [0] * job.size, job.stderr()
        assert job.nothing_left()
    assert_models(job, PASSES)
    for number in range(TRAINERS):
        assert_seen(log(job, number), number, job.output.parent, PASSES)
    assert accuracy(log(job, 0))[1] == pytest.approx(loss_of_one_node, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("role", "kind", "number", "code"),
    [
        ("TRAINER", "trainer", signal.SIGKILL, 137),
        ("PSERVER", "pserver", signal.SIGKILL, 137),
        ("PSERVER", "pserver", signal.SIGTERM, Exit.MASKED),  # 0 is a success only after all trainers have trained
    ],
)
def test_a_killed_process_ends_all_members_and_is_named(
    job: Job, paddle_2: str, role: str, kind: str, number: signal.Signals, code: int
) -> None:
    start(job, paddle_2, "ps.py", FOR_EVER).until_training(WITHIN)
    process(job, 1, role).send_signal(number)
    assert job.codes(WITHIN) == [69, code, 69], job.stderr()
    for rank in (0, 2):
        assert f"rank 1 (pod-1): {kind} (" in job.termination(rank)
        assert number.name in job.termination(rank)
    assert job.nothing_left()


def test_sigterm_to_one_launcher_ends_all_members(job: Job, paddle_2: str) -> None:
    start(job, paddle_2, "ps.py", FOR_EVER).until_training(WITHIN)
    job.launchers[1].terminate()
    assert job.codes(WITHIN) == [69, 143, 69], job.stderr()
    assert "rank 1 (pod-1): got SIGTERM" in job.termination(0)
    assert job.nothing_left()


@pytest.mark.parametrize(
    ("flag", "advice"),
    [("--no-stop", "a trainer must call fleet.stop_worker()"), ("--sync", "set strategy.a_sync = True")],
)
def test_after_a_crash_of_paddle_the_message_says_what_to_change(
    small_job: Job, paddle_2: str, flag: str, advice: str
) -> None:
    small_job.size = 1
    start(small_job, paddle_2, str(PROGRAMS / "server_and_trainer.py"), flag)
    assert small_job.codes(WITHIN) == [139], small_job.stderr()
    assert advice in small_job.termination(0)
    assert small_job.nothing_left()


@pytest.mark.parametrize(
    ("program", "advice"), [("server_and_trainer.py", "install paddlepaddle 2.6.2"), ("ps.py", "install 2.6.2")]
)
def test_a_paddle_without_parameter_servers_is_named(job: Job, paddle_3: str, program: str, advice: str) -> None:
    job.size = 1
    job.environment["LAUNCHER_ALLOW_UNUSED_SHARDS"] = "1"  # the volume has three
    own = PROGRAMS / program
    start(job, paddle_3, str(own) if own.exists() else program)
    assert job.codes(WITHIN) == [1], job.stderr()
    assert advice in job.termination(0)
    assert not (job.output / "node_0" / "train.log").exists()  # the server failed before the trainer started
    assert job.nothing_left()
