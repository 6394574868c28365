"""Folders of jobs that never ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.report import reader
from launcher.report.facts import Facts
from tests.support.report_jobs import MadeJob, cause

Made = Callable[..., Facts]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Write the files of a job, and read them. `age`: seconds since its last event."""

    def make(age: float = 1.0, **fields: Any) -> Facts:
        job = MadeJob(**fields)
        job.write(tmp_path)
        return reader.read(str(tmp_path / "output"), now=job.end + age)

    return make


@pytest.fixture
def elastic(made: Made) -> Facts:
    """Return a job that grows from 2 to 3 trainers after generation 0, and shrinks after 2. 1 and 3 end by failures."""
    grows = cause(0, kind="resized", rank=None, role=None, what="the job grows from 2 to 3 trainers", tail=[])
    stopped = cause(2, kind="stopped", what="got SIGTERM", code=143, tail=[])
    return made(sizes=(2, 3, 3, 2, 2), ended_by={0: grows, 2: stopped})
