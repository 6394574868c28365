"""Read the passes, logs and generations of a job that runs the stand-in."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.jobs import Job, until

TRAINER, PSERVER = "paddle_trainer", "paddle_pserver_main"


PASSES = 6


SIX = ("--config=trainer_config.lr.py", f"--num_passes={PASSES}", "--log_period=1")


MARK = re.compile(
    r"^==== \S+ \S+ generation (\d+), pod pod-\d(?:, after pass (\d+))?(?:, because .*)? ====$", re.MULTILINE
)


def history(job: Job) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads((job.output / "job.json").read_text())["generations"]
    return content


def log(job: Job, rank: int, name: str = "train.log") -> str:
    return (job.output / f"node_{rank}" / name).read_text()


def saved(job: Job, number: int) -> bool:
    return (job.output / f"pass-{number:05d}" / "done").exists()


def until_saved(job: Job, number: int) -> None:
    until(lambda: saved(job, number), what=f"pass {number}\n{job.stderr()}")


def until_generation(job: Job, number: int) -> None:
    until(lambda: history(job)[-1]["number"] == number, what=f"generation {number}\n{job.stderr()}")
