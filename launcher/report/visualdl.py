"""Export the curves of a job for VisualDL, the dashboard of Paddle. VisualDL's own writer writes the files."""

from __future__ import annotations

import math
import os
from typing import Any

from launcher.errors import Exit, Failure
from launcher.report import accounts as accounting
from launcher.report import lanes
from launcher.report.accounts import REPEATED
from launcher.report.facts import Facts
from launcher.report.verdict import judge

_TAGS = (("loss", "loss"), ("accuracy", "accuracy"), ("speed", "examples_per_second"))


def export(facts: Facts, folder: str) -> list[str]:
    """Write one VisualDL run per trainer, and one for the passes of the job. Return the names of the runs.

    The step of a trainer's value is its index among the values in the report. Values that are not finite are left
    out. Raises Failure if the package visualdl is not installed, or if the folder cannot be written.
    """
    log_writer = _log_writer()
    runs = []
    try:
        for member in facts.members.values():
            if member.samples:
                name = member.name.replace(" ", "_")
                with log_writer(logdir=os.path.join(folder, name), display_name=member.full_name) as writer:
                    for step, sample in enumerate(member.samples):
                        for field, tag in _TAGS:
                            _add(writer, tag, step, getattr(sample, field), sample.at)
                runs.append(name)
        verdict = judge(facts)
        passes = accounting.account(facts, verdict, lanes.end_of_axis(facts, verdict)).passes
        kept = [row for row in passes if row.fate != REPEATED]
        if kept:
            with log_writer(logdir=os.path.join(folder, "passes"), display_name=f"{facts.name}: passes") as writer:
                for row in kept:
                    _add(writer, "pass/seconds", row.done.number, row.seconds, row.done.at)
                    for field, tag in _TAGS:
                        _add(writer, f"pass/{tag}", row.done.number, getattr(row.done, field), row.done.at)
            runs.append("passes")
    except OSError as error:
        raise Failure(Exit.CANNOT_WRITE, f"cannot write {folder}: {error.strerror or error}") from None
    return runs


def _log_writer() -> Any:
    try:
        from visualdl import LogWriter
    except ImportError as error:
        advice = "pip install 'paddle-launcher[visualdl]'"
        raise Failure(Exit.CONFIG, f"--visualdl: the package visualdl cannot be imported ({error}): {advice}") from None
    return LogWriter


def _add(writer: Any, tag: str, step: int, value: float | None, at: float) -> None:
    if value is not None and math.isfinite(value):
        writer.add_scalar(tag=tag, step=step, value=value, walltime=round(at * 1000))
