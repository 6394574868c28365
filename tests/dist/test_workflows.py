"""The workflows in .github: two linters have nothing to say, actions are pinned, and they run what .ci/run runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
_ACTION = re.compile(r"uses: (?:[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/ci\.yml #.*)$")

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / ".github" / "workflows" / name).read_text())
    return found


def test_actionlint_finds_nothing(tools: Path) -> None:
    command: list[Path] = [tools / "actionlint", *WORKFLOWS]
    done = subprocess.run(command, text=True, capture_output=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_zizmor_finds_nothing(tools: Path) -> None:
    command: list[str | Path] = [
        tools / "zizmor",
        "--offline",
        "--persona",
        "pedantic",
        "--quiet",
        str(REPOSITORY / ".github"),
    ]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@each_workflow
def test_every_action_is_named_by_its_commit_and_its_version(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not _ACTION.search(line)] == []


@each_workflow
def test_no_job_has_a_permission_that_it_does_not_name(path: Path) -> None:
    workflow = read(path.name)
    assert workflow["permissions"] == {}
    assert all(job["permissions"] for job in workflow["jobs"].values())


def test_only_the_last_jobs_of_a_release_may_write() -> None:
    jobs = read("release.yml")["jobs"]
    writing = {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert writing == {"attest", "publish", "release"}
    assert all({"tests", "attest", "publish"} & set(jobs[name]["needs"]) for name in writing)


def test_the_workflow_runs_the_tests_that_ci_run_runs() -> None:
    stages = set(re.findall(r"^stage \d+ make (lint|test\S*)$", (REPOSITORY / ".ci" / "run").read_text(), re.MULTILINE))
    assert set(read("ci.yml")["jobs"]["checks"]["strategy"]["matrix"]["target"]) == stages
