"""The user's own commands as trainers and servers: in which order they start, and how they end together."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.jobs import Job, until
from tests.support.nodes import Nodes
from tests.support.paths import REPOSITORY
from tests.support.programs import PROGRAM, left


@pytest.fixture
def job(three_nodes: Nodes, tmp_path: Path) -> Job:
    (tmp_path / "place").mkdir()
    return Job(three_nodes, None, tmp_path, PLACE=str(tmp_path / "place"))


def start(job: Job, body: str, **variables: str) -> Job:
    program = job.folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(body))
    job.environment |= variables
    return job.start(flags=("--", sys.executable, str(program)))


PS = """
    if role == "pserver":
        others("late", 1 if rank == "2" else 0)
        door = listen("PADDLE_CURRENT_ENDPOINT")
        signal.pause()
    listening = [f for f in os.listdir(here) if f.startswith("pserver") and f.endswith("listens")]
    leave(f"found-{len(listening)}")
"""


def test_trainers_start_after_all_servers_listen_and_servers_end_after_all_have_trained(job: Job) -> None:
    start(job, PS, LAUNCHER_MODE="ps")
    until(lambda: {"pserver-0-listens", "pserver-1-listens"} <= left(job), what=job.stderr())
    assert not any(name.startswith("trainer") for name in left(job))
    (job.folder / "place" / "late").touch()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert {name for name in left(job) if name.startswith("trainer")} == {f"trainer-{r}-found-3" for r in range(3)}
    assert job.nothing_left()


def test_with_gloo_servers_and_trainers_start_together(job: Job) -> None:
    body = """
        leave("here")
        if role == "pserver":
            others("trainer", 3)  # like server 0, which serves only after all trainers have registered
            signal.pause()
        others("pserver", 3)
    """
    start(job, body, LAUNCHER_MODE="ps", PADDLE_WITH_GLOO="2")
    assert job.codes() == [0, 0, 0], job.stderr()


def test_a_server_that_ends_while_trainers_train_fails_the_job_even_with_0(job: Job) -> None:
    body = """
        if role == "pserver":
            door = listen("PADDLE_CURRENT_ENDPOINT")
            others("trainer", 3)
            sys.exit(0) if rank == "1" else signal.pause()
        leave("here")
        signal.pause()
    """
    start(job, body, LAUNCHER_MODE="ps")
    codes = job.codes()
    assert codes[0] == codes[2] == 69
    assert "pserver" in job.termination(0)
    assert "ended by itself with exit code 0" in job.termination(0)


def test_a_server_may_end_with_0_just_before_all_have_trained(job: Job) -> None:
    body = """
        if role == "pserver":
            door = listen("PADDLE_CURRENT_ENDPOINT")
            others("trainer", 3)
            leave("ends")
            sys.exit(0)
        leave("here")
        others("pserver-0-ends", 1)
    """
    start(job, body, LAUNCHER_MODE="ps")
    assert job.codes() == [0, 0, 0], job.stderr()


def test_collective_trainers_start_as_soon_as_the_first_trainer_listens(job: Job) -> None:
    body = """
        if rank == "0":
            others("open", 1)
            door = listen("PADDLE_MASTER")
            others("trainer", 3)
        else:
            socket.create_connection(os.environ["PADDLE_MASTER"].split(":"), 5)  # without a retry
            leave("here")
    """
    start(job, body)
    until(lambda: "the first trainer starts" in job.stderr(0), what=job.stderr())
    (job.folder / "place" / "open").touch()
    assert job.codes() == [0, 0, 0], job.stderr()


def test_the_other_trainers_start_if_the_first_trainer_ends_without_listening(job: Job) -> None:
    start(job, 'leave("here")')
    assert job.codes() == [0, 0, 0], job.stderr()
    assert left(job) == {f"trainer-{rank}-here" for rank in range(3)}


def test_a_collective_trainer_that_fails_ends_all_members_and_is_named(job: Job) -> None:
    body = """
        if rank == "0":
            door = listen("PADDLE_MASTER")
        if rank == "2":
            sys.exit(3)
        signal.pause()
    """
    start(job, body)
    assert job.codes() == [69, 69, 3]
    assert "rank 2" in job.termination(0)
    assert job.nothing_left()


def test_all_of_several_trainers_per_node_must_train(job: Job) -> None:
    body = """
        if rank == "0":
            door = listen("PADDLE_MASTER")
        leave("here")
        others("trainer", 7)  # six lines, and the second line of the first trainer
    """
    start(job, body, LAUNCHER_TRAINERS_PER_NODE="2")
    assert job.codes() == [0, 0, 0], job.stderr()
    assert {name for name in left(job) if name.endswith("here")} == {f"trainer-{rank}-here" for rank in range(6)}
    assert (job.folder / "work-1" / "output" / "node_1" / "train_1.log").exists()


def test_a_program_runs_with_output_although_its_folder_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir(mode=0o555)
    powers = "-dac_override,-dac_read_search"  # without these capabilities, file modes also apply to root
    command = ["setpriv", f"--inh-caps={powers}", f"--bounding-set={powers}", sys.executable, "-m", "launcher", "run"]
    program = "import os; print('rank', os.environ['TRAINER_ID'], 'of', os.environ['TRAINERS'])"
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", program],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank 0 of 1\n"
    assert not list(folder.iterdir())
