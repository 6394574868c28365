"""Pods with one role each: servers and trainers of one gang run in separate pods, from the start to the end."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import Job, until
from tests.support.nodes import Nodes
from tests.support.programs import PROGRAM, left
from tests.support.roles_job import PSERVER, PSERVERS, TRAINERS, RolesJob

SERVE = """
    if role == "pserver":
        door = listen("PADDLE_CURRENT_ENDPOINT")
        signal.pause()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RolesJob]:
    volume = tmp_path / "volume"
    (tmp_path / "place").mkdir()
    for trainer in range(TRAINERS):
        data = volume / "quick-start" / str(trainer) / "data"
        data.mkdir(parents=True)
        (data / "train.txt").write_text(f"{trainer}\n")
    (volume / "quick-start" / "quick_start").mkdir()
    (volume / "quick-start" / "quick_start" / "settings").touch()
    with Nodes(TRAINERS + PSERVERS) as nodes:
        yield RolesJob(nodes, volume, tmp_path, TRAINERS + PSERVERS, PLACE=str(tmp_path / "place"))


def command(job: Job, *parts: str) -> tuple[str, ...]:
    program = job.folder / "program.py"
    program.write_text("\n".join(map(textwrap.dedent, (PROGRAM, *parts))))
    return ("--", sys.executable, str(program))


def test_each_pod_has_its_role_and_servers_end_after_all_have_trained(job: RolesJob) -> None:
    job.start(flags=command(job, SERVE, 'leave("on-" + open("data/train.txt").read().strip())'))
    assert job.codes() == [0] * 5, job.stderr()
    assert left(job) == {"pserver-0-listens", "pserver-1-listens", *(f"trainer-{n}-on-{n}" for n in range(3))}
    folders = {f"{path.parent.name}/{path.name}" for path in job.output.glob("*_*/*.log")}
    assert folders == {*(f"node_{n}/train.log" for n in range(3)), *(f"pserver_{n}/server.log" for n in range(2))}
    assert job.nothing_left()


def test_trainers_start_after_all_servers_listen(job: RolesJob) -> None:
    job.start(flags=command(job, 'if role == "pserver": others("late", int(rank))', SERVE, 'leave("here")'))
    until(lambda: "pserver-0-listens" in left(job), what=job.stderr())
    assert not any(name.startswith("trainer") for name in left(job))
    (job.folder / "place" / "late").touch()
    assert job.codes() == [0] * 5, job.stderr()


def test_a_killed_server_ends_all_members_and_is_named_by_its_number_within_the_role(job: RolesJob) -> None:
    body = """
        leave("here")
        if role == "pserver":
            door = listen("PADDLE_CURRENT_ENDPOINT")
        signal.pause()
    """
    job.start(flags=command(job, body))
    until(lambda: sum(name.endswith("here") for name in left(job)) == 5, what=job.stderr())
    job.kill(PSERVER + 1, "program.py")
    assert job.codes() == [69, 69, 69, 69, 137], job.stderr()
    for rank in range(5):
        assert "pserver 1 (pod-4): pserver" in job.termination(rank)
    assert "[pserver 1]" in job.stderr(PSERVER + 1)
    shown = job.shown().splitlines()
    assert [line.split("  ")[0] for line in shown[1:]] == [
        *(f"trainer {n}" for n in range(3)),
        *(f"pserver {n}" for n in range(2)),
    ]
    assert job.nothing_left()


def test_a_lost_launcher_of_a_server_is_named_and_the_hub_ends_with_76(job: RolesJob) -> None:
    job.start(flags=command(job, SERVE, 'leave("here")', "signal.pause()"))
    until(lambda: sum(name.endswith("here") for name in left(job)) == 3, what=job.stderr())
    job.launchers[PSERVER].kill()
    assert job.codes() == [76, 69, 69, 137, 69], job.stderr()
    assert "pserver 0 (pod-3): pserver 0 (pod pod-3) was lost" in job.termination(PSERVER + 1)


def test_missing_members_are_named_by_role(job: RolesJob) -> None:
    job.start(0, 1, PSERVER, flags=command(job, SERVE))
    said = "3 of 5 have joined (missing: trainer 2, pserver 1)"
    until(lambda: said in job.stderr(0), what="the hub says who is missing")
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes() == [143, 143, 143], job.stderr()


def test_a_pod_that_starts_after_completion_ends_with_0(job: RolesJob) -> None:
    flags = command(job, SERVE)
    assert job.start(flags=flags).codes() == [0] * 5, job.stderr()
    job.start(PSERVER + 1, flags=flags)
    assert job.code(PSERVER + 1) == 0, job.stderr()
    assert "complete already" in job.stderr(PSERVER + 1)


def test_trainers_do_not_wait_for_a_server_that_has_failed_for_good(job: RolesJob) -> None:
    flags = command(job, SERVE)
    job.start(0, 1, 2, flags=flags)
    job.start(PSERVER, flags=flags, LAUNCHER_SECRET_FILE=str(job.folder / "missing"))
    assert job.codes(30) == [71, 71, 71, 78], job.stderr()
    for rank in range(TRAINERS):
        assert "the pservers have failed for good: exit code 78" in job.termination(rank)
        assert "LAUNCHER_SECRET_FILE" in job.termination(rank)
    signs = {path.name for path in (job.output / ".launcher" / "failed" / "job-1").iterdir()}
    assert signs == {
        "since-trainer",
        "since-pserver",
        "pserver-pod-3",
    }  # the trainers end because of the server, so they leave no mark


@pytest.mark.parametrize(
    ("flag", "program", "code", "named"),
    [
        ("--launcher-port=none", (), 64, "--launcher-port"),
        ("--launcher-gang-port=none", (), 78, "LAUNCHER_GANG_PORT"),
        ("--launcher-rank=0", ("-m", "paddle.distributed.launch"), 64, "failed/job-1/pserver-0)"),
    ],
    ids=["command line", "configuration", "plan"],
)
def test_trainers_do_not_wait_for_a_server_with_a_wrong_configuration(
    job: RolesJob, flag: str, program: tuple[str, ...], code: int, named: str
) -> None:
    dash, python, *rest = command(job, SERVE)
    job.start(0, flags=(dash, python, *rest))
    marks = job.output / ".launcher" / "failed" / "job-1"
    until(
        (marks / "since-trainer").exists, what=job.stderr()
    )  # a mark that is older than this one counts only after a longer time
    job.start(PSERVER, flags=(flag, dash, python, *program, *rest))
    assert job.codes(30) == [71, code], job.stderr()
    assert f"the pservers have failed for good: exit code {code}: " in job.termination(0)
    assert named in job.termination(0)


def test_a_member_with_a_repaired_configuration_removes_its_mark(job: RolesJob) -> None:
    flags = command(job, SERVE)
    sign = job.output / ".launcher" / "failed" / "job-1" / "pserver-pod-3"
    job.start(PSERVER, flags=flags, CONF_PADDLE_NIC="none")
    assert job.code(PSERVER) == 78
    assert sign.exists()
    assert job.start(flags=flags).codes() == [0] * 5, job.stderr()
    assert not sign.exists()


def test_a_volume_that_does_not_answer_does_not_delay_a_member_with_a_wrong_configuration(job: RolesJob) -> None:
    signs = job.output / ".launcher" / "failed" / "job-1"
    signs.mkdir(parents=True)
    os.mkfifo(signs / "since")  # opening it blocks forever
    job.start(PSERVER, flags=command(job, SERVE), CONF_PADDLE_NIC="none")
    assert job.code(PSERVER) == 78
    assert "CONF_PADDLE_NIC" in job.termination(PSERVER)


@pytest.mark.parametrize(
    "more",
    [{"LAUNCHER_JOB_ID": ""}, {"LAUNCHER_ROLE": "server"}, {"LAUNCHER_RANK": "none"}, {"LAUNCHER_RANK": "2"}],
    ids=["identity", "role", "number", "no such number"],
)
def test_a_member_that_does_not_know_its_name_leaves_no_mark(job: RolesJob, more: dict[str, str]) -> None:
    job.start(PSERVER, flags=command(job, SERVE), CONF_PADDLE_NIC="none", **more)
    assert job.code(PSERVER) == 78
    assert not job.output.exists()


def test_no_folder_is_created_if_the_volume_is_missing(job: RolesJob) -> None:
    missing = job.folder / "missing"
    job.start(PSERVER, flags=command(job, SERVE), CONF_PADDLE_NIC="none", JOB_PATH=str(missing))
    assert job.code(PSERVER) == 78
    assert not missing.exists()


def test_a_member_that_starts_again_removes_its_mark(job: RolesJob) -> None:
    sign = job.output / ".launcher" / "failed" / "job-1" / "pserver-pod-3"
    sign.parent.mkdir(parents=True)
    sign.write_text("exit code 78: long mended")
    job.start(flags=command(job, SERVE))
    assert job.codes() == [0] * 5, job.stderr()
    assert not sign.exists()
