"""`paddle-launcher report` writes the page, and prints its path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import forked
from tests.support.report_jobs import MadeJob


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    return forked.run(["report", *arguments])


def test_the_page_is_written_to_the_output_folder(tmp_path: Path) -> None:
    MadeJob().write(tmp_path)
    done = report(tmp_path)
    assert done.stdout == f"{tmp_path}/output/report.html\n"
    assert "The job is complete" in (tmp_path / "output" / "report.html").read_text()


def test_the_page_is_written_to_another_file(tmp_path: Path) -> None:
    MadeJob().write(tmp_path)
    done = report(tmp_path, "--output", tmp_path / "elsewhere.html")
    assert done.stdout == f"{tmp_path}/elsewhere.html\n"
    assert (tmp_path / "elsewhere.html").exists()
    assert not (tmp_path / "output" / "report.html").exists()


def test_a_missing_folder_ends_with_66(tmp_path: Path) -> None:
    done = report(tmp_path)
    assert done.returncode == 66
    assert "no such folder" in done.stderr


def test_without_a_folder_the_variables_name_the_job(tmp_path: Path) -> None:
    MadeJob(generations=1).write(tmp_path / "quick-start")
    command = [sys.executable, "-m", "launcher", "report"]
    environment = {"JOB_PATH": str(tmp_path), "JOB_NAME": "quick-start", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == f"{tmp_path}/quick-start/output/report.html\n", done.stderr
