"""`paddle-launcher status --watch FOLDER` in a terminal, and without one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.support.volumes import JobFolder

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"  # the second screen of a terminal
SHOW_CURSOR = "\x1b[?25h"
STALLED = """
import sys, threading
from launcher.cli.main import _watch

class Stalled:
    name = "stalled"
    pause = None
    def poll(self):
        print("polls", flush=True)
        threading.Event().wait()

sys.exit(_watch(Stalled()))
"""


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path)


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", **more}


def watch(job: JobFolder) -> Sequence[str]:
    return [sys.executable, "-m", "launcher", "status", "--watch", str(job.path)]


def without_rich(folder: Path) -> dict[str, str]:
    """Return variables with which `import rich` fails."""
    (folder / "hidden" / "rich").mkdir(parents=True)
    (folder / "hidden" / "rich" / "__init__.py").write_text("raise ImportError('hidden')\n")
    paths = [str(folder / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment(PYTHONPATH=os.pathsep.join(paths))


def test_ctrl_c_ends_the_view_with_130_and_leaves_the_terminal_as_it_was(job: JobFolder) -> None:
    with Terminal(watch(job), environment()) as terminal:
        assert ENTER in terminal.wait_for("Ctrl-C ends this view")
        terminal.type("\x03")
        assert terminal.code() == 130, terminal.output
        assert LEAVE in terminal.output
        assert SHOW_CURSOR in terminal.output
        assert terminal.output.rpartition("\x1b[")[2] in ("?25h", "?1049l")
        assert termios.tcgetattr(terminal.fd) == terminal.settings


def test_ctrl_c_ends_a_view_whose_volume_does_not_answer() -> None:
    with Terminal([sys.executable, "-c", STALLED], environment()) as terminal:
        terminal.wait_for("polls")
        terminal.type("\x03")
        assert terminal.code() == 130, terminal.output
        assert "Traceback" not in terminal.output


def test_ctrl_z_leaves_the_terminal_to_the_shell_until_the_view_continues(job: JobFolder) -> None:
    with Terminal(["bash", "--norc", "-i"], environment()) as terminal:
        terminal.type(shlex.join(watch(job)) + "\n")
        terminal.wait_for("Ctrl-C ends this view")
        terminal.type("\x1a")
        before, _, after = terminal.wait_for("Stopped").partition(LEAVE)
        assert SHOW_CURSOR in before[-20:] + after
        terminal.type("fg\n")
        assert ENTER in terminal.wait_for("Ctrl-C ends this view")
        terminal.type("\x03")
        terminal.wait_for(LEAVE)
        terminal.type("exit\n")
        assert terminal.code() == 130


def test_sigterm_leaves_the_terminal_as_it_was(job: JobFolder) -> None:
    with Terminal(watch(job), environment()) as terminal:
        terminal.wait_for("Ctrl-C ends this view")
        os.kill(terminal.pid, 15)
        assert terminal.code() == 143
        assert LEAVE in terminal.output
        assert SHOW_CURSOR in terminal.output


def test_the_view_follows_the_size_of_the_terminal(job: JobFolder) -> None:
    with Terminal(watch(job), environment()) as terminal:
        terminal.wait_for("all 3 members have joined")
        terminal.resize(6, 40)
        for _ in range(3):
            shown = terminal.wait_for("Ctrl-C ends this view")
        assert "all 3 members" not in shown


def test_the_end_of_the_job_ends_the_view_with_its_verdict_and_exit_code(job: JobFolder) -> None:
    with Terminal(watch(job), environment()) as terminal:
        terminal.wait_for("Ctrl-C ends this view")
        job.end(3, kind="trainer", rank=1, role="both", pod="pod-1", what="trainer ended with 3", code=3)
        assert terminal.code() == 3
        last = terminal.output.partition(LEAVE)[2]
        assert "because of rank 1" in last
        assert "quick-start: exit code 3: rank 1 (pod-1): trainer ended with 3" in last


def test_no_color_is_used_with_no_color(job: JobFolder) -> None:
    with Terminal(watch(job), environment(NO_COLOR="1")) as terminal:
        shown = terminal.wait_for("Ctrl-C ends this view")
        assert not any(f"\x1b[{code}m" in shown for code in (31, 32, 33, "1;31", "38"))


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_plain_lines(job: JobFolder, term: str) -> None:
    with Terminal(watch(job), environment(TERM=term)) as terminal:
        shown = terminal.wait_for("rank 0-2: training")
        assert "\x1b" not in shown
        job.end()
        assert terminal.code() == 0
        assert "\x1b" not in terminal.output
        assert terminal.output.rstrip().endswith("quick-start: the job is complete")


def test_without_rich_a_terminal_gets_plain_lines_and_is_told_why(job: JobFolder, tmp_path: Path) -> None:
    with Terminal(watch(job), without_rich(tmp_path)) as terminal:
        shown = terminal.wait_for("rank 0-2: training")
        assert "pip install 'paddle-launcher[ui]'" in shown
        assert "\x1b" not in shown
        terminal.type("\x03")
        assert terminal.code() == 130, terminal.output


def test_a_pipe_gets_plain_lines_until_the_job_ends(job: JobFolder) -> None:
    job.end()
    done = subprocess.run(watch(job), env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line[20:] for line in done.stdout.splitlines()[:-1]]
    assert lines == [
        "all 3 members have joined",
        "generation 0 begins",
        "the job is complete",
        "rank 0-2: complete",
        "100 %",
    ]
    assert done.stdout.splitlines()[-1] == "quick-start: the job is complete"


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(job: JobFolder) -> None:
    job.log(0, "损失 0.25\n")
    with Terminal(watch(job), environment(LANG="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")) as terminal:
        terminal.wait_for("Ctrl-C ends this view")
        job.end()
        assert terminal.code() == 0
