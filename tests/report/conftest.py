"""Folders of jobs that never ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.report import reader
from launcher.report.facts import Facts
from tests.support.report_jobs import MadeJob

Made = Callable[..., Facts]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Write the files of a job, and read them. `age`: seconds since its last event."""

    def make(age: float = 1.0, **fields: Any) -> Facts:
        job = MadeJob(**fields)
        job.write(tmp_path)
        return reader.read(str(tmp_path / "output"), now=job.end + age)

    return make
