"""Fixtures for tests of the work directory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job's folder on a volume, with two shards and a configuration. Also make an empty work directory."""
    folder = tmp_path / "volume" / "job"
    for rank in (0, 1):
        (folder / str(rank) / "data").mkdir(parents=True)
        (folder / str(rank) / "data" / "train.txt").write_text(f"lines of {rank}\n")
    (folder / "quick_start").mkdir()
    (folder / "quick_start" / "trainer_config.py").write_text("settings()\n")
    (tmp_path / "work").mkdir()
    return folder
