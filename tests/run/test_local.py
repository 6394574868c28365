"""`local`: launchers on this machine, as their user sees them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.run import local
from tests.support.jobs import FLAGS, IN_A_PASS, JOB, fresh, until
from tests.support.paths import REPOSITORY, STANDIN

_MUCH = r"head -c 40000000 /dev/zero | tr '\0' '\n'; touch ended"


def test_a_job_ends_although_its_output_is_no_longer_read(tmp_path: Path) -> None:
    repository = str(REPOSITORY)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": repository}
    command = [sys.executable, "-m", "launcher", "local", "--nodes", "1", "--", "sh", "-c", _MUCH]
    job = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert job.stdout is not None
    job.stdout.readline()
    job.stdout.close()
    try:
        assert job.wait(30) == 0
    finally:
        job.terminate()
        job.wait()
    assert (tmp_path / "ended").exists()


def whole_gang(volume: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """Start `local` with three nodes on this volume."""
    environment: dict[str, Any] = {
        "PYTHONPATH": str(REPOSITORY),
        "PATH": f"{STANDIN}{os.pathsep}{os.environ['PATH']}",
        "JOB_NAME": JOB,
        "JOB_PATH": str(volume),
        "TRAIN_CONFIG_DIR": "quick_start",
    }
    command = [sys.executable, "-m", "launcher", "local", "--nodes", "3", *words]
    return subprocess.Popen(command, env=environment | more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def held(folder: Path) -> dict[str, str]:
    """Return the variables that keep the trainers of a gang in their first pass."""
    gates = folder / "gates"
    gates.mkdir()
    (gates / IN_A_PASS).touch()
    return {"STANDIN_GATES": str(gates)}


def test_three_nodes_train_and_their_lines_carry_the_rank(data_volume: Path, tmp_path: Path) -> None:
    volume = fresh(data_volume, tmp_path)
    job = whole_gang(volume, *FLAGS)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert (volume / JOB / "output" / "pass-00001" / "done").exists()
    for rank in range(3):
        assert re.search(rf"^\[{rank}\] I.* Pass=1 ", errors, re.MULTILINE)  # Paddle v0 logs to standard error
        assert re.search(rf"^\[{rank}\] .* \[rank {rank}\] exit code 0", errors, re.MULTILINE)
    status = subprocess.run(
        [sys.executable, "-m", "launcher", "status", "--json", str(volume / JOB)], capture_output=True, check=True
    )
    assert [member["phase"] for member in json.loads(status.stdout)["members"]] == ["complete"] * 3


def test_the_exit_code_is_that_of_the_member_at_fault(data_volume: Path, tmp_path: Path) -> None:
    job = whole_gang(fresh(data_volume, tmp_path), *FLAGS, STANDIN_EXIT_AT="1:3")
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 3, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_reaches_all_nodes_once(data_volume: Path, tmp_path: Path, number: int) -> None:
    volume = fresh(data_volume, tmp_path)
    job = whole_gang(volume, *FLAGS, **held(tmp_path))
    statuses = [volume / JOB / "output" / f"node_{rank}" / "status.json" for rank in range(3)]
    until(lambda: all(path.exists() and '"training"' in path.read_text() for path in statuses))
    job.send_signal(number)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 143, errors
    assert errors.count("exit code 143") == 3


def at_the_start_of(rank: int, folder: Path, *statements: str) -> str:
    """Return a PYTHONPATH with which the launcher of one node runs this code first."""
    lines = ["import os, signal", f'if os.environ.get("LAUNCHER_RANK") == "{rank}":', *(f"    {s}" for s in statements)]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return f"{folder}{os.pathsep}{REPOSITORY}"


@pytest.mark.parametrize(
    ("end", "code"),
    [("os.kill(os.getpid(), signal.SIGKILL)", 137), ('os.environ["CONF_PADDLE_PORT"] = "none"', 78)],
)
def test_nodes_do_not_wait_for_a_node_that_ended_before_the_join(
    data_volume: Path, tmp_path: Path, end: str, code: int
) -> None:
    path = at_the_start_of(1, tmp_path, end)
    job = whole_gang(fresh(data_volume, tmp_path), *FLAGS, PYTHONPATH=path, LAUNCHER_PEER_TIMEOUT="600")
    _, errors = job.communicate(timeout=60)
    assert job.returncode == code, errors
    (said,) = (line for line in errors.splitlines() if "[local]" in line)
    assert f"node 1 ended with exit code {code}: stopping the other nodes: 0, 2" in said
    assert errors.count("exit code 143: ") == 2


def test_the_code_is_that_of_the_first_member_at_fault(data_volume: Path, tmp_path: Path) -> None:
    job = whole_gang(fresh(data_volume, tmp_path), *FLAGS, **held(tmp_path))
    statuses = [tmp_path / "volume" / JOB / "output" / f"node_{rank}" / "status.json" for rank in range(3)]
    until(lambda: all(path.exists() and '"training"' in path.read_text() for path in statuses))
    ranks = {process.environ().get("LAUNCHER_RANK"): process for process in psutil.Process(job.pid).children()}
    ranks["1"].kill()
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 137, errors  # the hub ends with 76 for the lost member


@pytest.mark.parametrize(
    ("first", "forwarded"),
    [(69, []), (143, []), (3, [signal.SIGTERM]), (0, [])],
    ids=["a peer's", "stopped", "all", "0"],
)
def test_launchers_that_may_still_be_stopping_in_order_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, first: int, forwarded: list[int]
) -> None:
    monkeypatch.setattr(local, "_FOLLOW_WITHIN", 0.01)
    programs = f"exit {first}", "trap 'exit 5' TERM; sleep 1 & wait"
    nodes = [subprocess.Popen(["sh", "-c", program]) for program in programs]
    assert local._Ends(nodes, grace=600).wait(forwarded) == [first, 0]
