"""An elastic job whose program calls `launcher.train.should_stop`: all trainers save after the same step."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.jobs import Job, until
from tests.support.passes import history, log
from tests.support.paths import REPOSITORY

PROGRAM = """
import os, socket, sys, time
sys.path.insert(0, sys.argv[2])
from launcher.train import should_stop

listening = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])))
checkpoint, gate = os.path.join(os.environ["LAUNCHER_SAVE_DIR"], "checkpoint"), sys.argv[1]
step = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
print(f"begins after step {step}", flush=True)
while step < 20 or os.path.exists(gate):
    time.sleep(0.01)
    step += 1
    if step == 5:
        print("has done 5", flush=True)
    if should_stop():
        if os.environ["PADDLE_TRAINER_ID"] == "0":
            with open(checkpoint, "w") as file:
                file.write(str(step))
        print(f"saves after step {step}", flush=True)
        sys.exit()
"""


@pytest.fixture
def elastic(job: Job, tmp_path: Path) -> Job:
    job.environment |= {
        "CONF_PADDLE_GRADIENT_NUM": "1:3",
        "LAUNCHER_MAX_RESTARTS": "3",
        "LAUNCHER_MODE": "collective",
        "LAUNCHER_SETTLE": "1",
    }
    (tmp_path / "train.py").write_text(PROGRAM)
    return job.hold("end")


def start(job: Job, *ranks: int) -> None:
    program = str(job.folder / "train.py")
    for rank in ranks:
        job.start(
            rank,
            flags=("--", sys.executable, program, str(job.gates / "end"), str(REPOSITORY)),
            POD_UID=f"uid-{rank}",
        )


def said(job: Job, words: str) -> list[int]:
    """Return the numbers that all trainers have printed after these words."""
    logs = [log(job, rank) for rank in range(job.size) if (job.output / f"node_{rank}" / "train.log").exists()]
    return [int(number) for text in logs for number in re.findall(words, text)]


def test_a_job_grows_after_a_step_that_all_trainers_have_saved(elastic: Job) -> None:
    job = elastic
    start(job, 0, 1)
    until(lambda: said(job, r"has done (\d+)") == [5, 5], what=job.stderr())
    start(job, 2)
    until(lambda: len(history(job)) == 2, what=job.stderr())
    saved = set(said(job, r"saves after step (\d+)"))
    assert len(saved) == 1
    until(lambda: said(job, rf"begins after step ({saved.copy().pop()})\n") != [], what=job.stderr())
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert len(said(job, r"saves after step (\d+)")) == 2
    first, second = history(job)
    assert (first["trainers"], second["trainers"]) == (2, 3)
    assert first["first_cause"]["kind"] == "resized"


@pytest.mark.parametrize("gone", [0, 2])
def test_all_trainers_save_before_a_member_that_is_told_to_stop_leaves(elastic: Job, gone: int) -> None:
    job = elastic
    start(job, 0, 1, 2)
    until(lambda: said(job, r"has done (\d+)") == [5, 5, 5], what=job.stderr())
    job.launchers[gone].send_signal(signal.SIGTERM)
    assert job.code(gone) == 143
    until(lambda: len(history(job)) == 2, what=job.stderr())
    saved = said(job, r"saves after step (\d+)")
    assert len(saved) == 3
    assert len(set(saved)) == 1
    job.release()
    others = [rank for rank in range(3) if rank != gone]
    assert [job.code(rank) for rank in others] == [0, 0], job.stderr()
    assert [one["trainers"] for one in history(job)] == [3, 2]
    assert "is repeated" not in job.stderr(), "no step was lost"
    assert said(job, r"begins after step (\d+)").count(saved[0]) == 2
