"""The first sentence of a job's report."""

from __future__ import annotations

from pathlib import Path

from launcher.report import reader
from launcher.report.verdict import judge


def first_sentence(output: Path) -> str:
    return judge(reader.read(str(output))).sentence
