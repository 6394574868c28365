"""`paddle-launcher why` in the pod of rank 0 says where all processes of a running job are, and disturbs nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import Exit
from tests.support import forked
from tests.support.jobs import Job, until

WAITS_FOR_ONE = """
import os, pathlib, socket, sys, time

listening = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])))
gate = pathlib.Path(sys.argv[1])

def all_reduce():
    while not gate.exists():
        time.sleep(0.05)

def read():
    while not gate.exists():
        time.sleep(0.05)

print("begins", flush=True)
if os.environ["TRAINER_ID"] == "2":
    read()
all_reduce()
"""


def why(job: Job, rank: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {"LAUNCHER_WORKDIR": str(job.folder / f"work-{rank}")}
    return forked.run(["why"], env=environment)


@pytest.fixture
def gate(job: Job) -> Iterator[Path]:
    path = job.folder / "gate"
    yield path
    path.touch()


def started(job: Job, gate: Path) -> Job:
    program = job.folder / "train.py"
    program.write_text(WAITS_FOR_ONE)
    job.environment |= {"LAUNCHER_MODE": "collective"}
    job.start(flags=("--", sys.executable, str(program), str(gate)))
    logs = [job.output / f"node_{rank}" / "train.log" for rank in range(job.size)]
    until(lambda: all(log.exists() and "begins" in log.read_text() for log in logs), what=job.stderr())
    return job


def test_why_groups_the_trainers_by_place_and_the_job_continues(job: Job, gate: Path) -> None:
    started(job, gate)
    said = until(lambda: text if "in read" in (text := why(job).stdout) else None, what=why(job).stdout)
    head, summary, advice, *groups = said.splitlines()
    assert "generation 0, training since" in head
    assert "2 of 3 in all_reduce, train.py:" in summary
    assert "; rank 2 in read, train.py:" in summary
    assert advice.startswith("Look first at rank 2 (pod pod-2)")
    assert "2 trainers in all_reduce, train.py:" in "\n".join(groups)
    gate.touch()
    assert job.codes() == [0, 0, 0], job.stderr()


def test_why_may_be_asked_as_often_as_a_user_likes_and_keeps_no_memory(job: Job, gate: Path) -> None:
    started(job, gate)
    for _ in range(10):
        assert why(job).returncode == 0
    trainer = job.process(0, "train.py")
    stacks = [file for file in Path(f"/proc/{trainer.pid}/fd").iterdir() if "launcher-stacks" in str(file.readlink())]
    assert [file.stat().st_blocks * 512 <= 64 * 1024 for file in stacks] == [True]


def test_before_all_members_have_joined_why_says_who_is_missing(job: Job) -> None:
    job.start(0, 1)
    said = until(lambda: text if "2 of 3" in (text := why(job).stdout) else None, what=job.stderr())
    assert said == "waiting for the other pods: 2 of 3 have joined; rank 2 has not joined\n"


def test_a_member_that_is_not_the_hub_names_the_pod_to_ask(job: Job, gate: Path) -> None:
    started(job, gate)
    assert why(job, 1).stdout == "only rank 0 can answer this: kubectl exec pod-0 -- paddle-launcher why\n"


def test_a_member_that_is_stopped_did_not_answer(job: Job, gate: Path) -> None:
    started(job, gate)
    job.launchers[1].send_signal(signal.SIGSTOP)
    try:
        assert "rank 1 did not answer" in why(job).stdout
    finally:
        job.launchers[1].send_signal(signal.SIGCONT)


def test_a_job_that_is_ending_says_so_at_once(job: Job) -> None:
    job.start_in_a_pass(STANDIN_DEAF="1", LAUNCHER_STOP_GRACE="60")
    job.launchers[1].terminate()
    until(lambda: job.status(0).get("phase") == "ending", what=job.stderr())
    assert "ending since" in (said := why(job).stdout)
    assert "all processes are being ended" in said
    for launcher in job.launchers.values():
        launcher.terminate()
    job.codes()


def test_a_hub_that_is_stopped_and_a_hub_that_is_gone_are_told_apart(job: Job) -> None:
    job.start_in_a_pass().launchers[0].send_signal(signal.SIGSTOP)
    assert "it is stopped, or gets no processor time" in why(job).stderr
    job.launchers[0].kill()
    job.codes()
    assert "the launcher that used this socket has ended" in why(job).stderr


def test_without_a_launcher_why_says_where_it_looked(tmp_path: Path, job: Job) -> None:
    asked = why(job)
    assert asked.returncode == Exit.TIMED_OUT
    assert f"no launcher answers at {job.folder}/work-0/.paddle-launcher.sock" in asked.stderr
