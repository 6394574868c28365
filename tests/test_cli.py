"""The command line, as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.cli import parse_run
from launcher.errors import Exit, Failure


def launcher(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "launcher", *words]
    return subprocess.run(command, env={**base, **environment}, capture_output=True, text=True, timeout=30, check=False)


def test_only_the_launchers_own_flags_are_taken() -> None:
    request = parse_run(["--job=train", "--launcher-peer-timeout", "5", "--version", "--launcher-rank=1", "x y"])
    assert request.own == {"LAUNCHER_PEER_TIMEOUT": "5", "LAUNCHER_RANK": "1"}
    assert request.flags == ("--job=train", "--version", "x y")


def test_a_command_after_two_dashes_is_kept_as_it_is() -> None:
    request = parse_run(["--launcher-rank=0", "--", "python", "t.py", "--launcher-rank=9", "--", "a b"])
    assert request.command == ("python", "t.py", "--launcher-rank=9", "--", "a b")


@pytest.mark.parametrize("words", [["--launcher-peer"], ["--launcher-nosuch=1"], ["--launcher-rank"], ["--"]])
def test_flags_of_the_launcher_are_not_guessed(words: list[str]) -> None:
    with pytest.raises(Failure) as caught:
        parse_run(words)
    assert caught.value.code == Exit.USAGE


def test_an_environment_that_is_wrong_in_six_ways_gives_six_lines_and_78(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    ended = launcher(
        "run",
        JOB_NAME="a/b",
        JOB_PATH="vol",
        CONF_PADDLE_PORT="x",
        CONF_PADDLE_GRADIENT_NUM="0",
        LAUNCHER_STOP_GRACE="-1",
        CONF_PADDLE_NIC="nosuch0",
        PATH=f"{Path(__file__).parent / 'standin'}:{os.environ['PATH']}",
        LAUNCHER_TERMINATION_LOG=str(message),
    )
    assert ended.returncode == Exit.CONFIG
    assert len(ended.stderr.splitlines()) == 6
    assert "Traceback" not in ended.stderr
    assert message.read_text() == ended.stderr


@pytest.mark.parametrize("words", [["fly"], ["local", "--nodes", "none"], ["run", "--launcher-x=1"], []])
def test_a_wrong_command_line_ends_with_64(words: list[str]) -> None:
    ended = launcher(*words)
    assert ended.returncode == Exit.USAGE
    assert "Traceback" not in ended.stderr


def test_help_names_every_command() -> None:
    ended = launcher("--help")
    assert ended.returncode == 0
    for command in ("run", "plan", "local", "shard", "status"):
        assert f"paddle-launcher {command}" in ended.stdout


def test_plan_shows_what_run_would_do_with_placeholders_for_the_peers() -> None:
    given = {"JOB_NAME": "j", "JOB_PATH": "/vol", "TRAIN_CONFIG_DIR": "conf", "CONF_PADDLE_GRADIENT_NUM": "3"}
    ended = launcher("plan", "--json", "--config=a b.py", **given, MY_PASSWORD="hunter2")
    assert ended.returncode == 0, ended.stderr
    plan = json.loads(ended.stdout)
    assert plan["rank"] is None
    assert [copy["source"] for copy in plan["copies"]] == ["/vol/j/conf", "/vol/j/<rank>/data"]
    assert plan["processes"][1]["argv"][-1] == "--config=a b.py"
    assert "hunter2" not in ended.stdout
    text = launcher("plan", "--config=a b.py", **given).stdout
    assert "'--config=a b.py'" in text


def test_plan_of_static_peers_is_whole() -> None:
    given = {"CONF_PADDLE_GRADIENT_NUM": "2", "LAUNCHER_PEERS": "10.0.0.1,10.0.0.2", "LAUNCHER_RANK": "1"}
    plan = json.loads(launcher("plan", "--json", **given).stdout)
    assert "--pservers=10.0.0.1,10.0.0.2" in plan["processes"][1]["argv"]
    assert "--trainer_id=1" in plan["processes"][1]["argv"]


def test_the_signal_handlers_stand_before_anything_else_is_imported() -> None:
    """Process 1 drops SIGTERM without a handler: one that comes during the imports must be remembered."""
    script = (
        "import os, signal, sys; before = set(sys.modules); import launcher.__main__ as m; "
        "os.kill(os.getpid(), signal.SIGTERM); print(m.received, sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == f"[{int(signal.SIGTERM)}] ['launcher', 'launcher.__main__']\n"
