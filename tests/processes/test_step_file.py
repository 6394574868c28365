"""A program that calls `launcher.train.should_stop` ends after the step that the launchers have agreed on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.processes.step_file import StepFile
from tests.support.jobs import until
from tests.support.paths import REPOSITORY

PROGRAM = """
import time
from launcher import train
steps = 1
while not train.should_stop():
    steps += 1
    time.sleep(0.001)
print(steps)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Start:
    def make(path: Path | None, program: str = PROGRAM) -> subprocess.Popen[str]:
        environment = {"PYTHONPATH": str(REPOSITORY)} | ({} if path is None else {"LAUNCHER_STEP_FILE": str(path)})
        return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)

    return make


def test_a_program_waits_at_its_next_step_and_ends_after_the_agreed_one(tmp_path: Path, start: Start) -> None:
    file = StepFile(str(tmp_path / "steps"))
    program = start(tmp_path / "steps")
    until(lambda: file.step > 3)
    asked = file.ask()
    until(lambda: _is_still(file))
    assert asked <= file.step <= asked + 1
    file.let_go(asked + 40)
    assert int(program.communicate(timeout=20)[0]) == asked + 40


def _is_still(file: StepFile) -> bool:
    before = file.step
    time.sleep(0.1)
    return file.step == before


def test_without_an_agreement_the_program_continues(tmp_path: Path, start: Start) -> None:
    file = StepFile(str(tmp_path / "steps"))
    program = start(tmp_path / "steps")
    until(lambda: file.step > 3)
    held = file.ask()
    file.let_go(0)
    until(lambda: file.step > held + 20)
    program.kill()
    program.communicate()


@pytest.mark.parametrize("name", [None, "missing"])
def test_without_a_file_a_program_never_stops(tmp_path: Path, start: Start, name: str | None) -> None:
    program = start(
        tmp_path / name if name else None, "from launcher import train; print({train.should_stop() for _ in range(9)})"
    )
    assert program.communicate(timeout=20)[0] == "{False}\n"


def test_a_new_file_begins_with_step_0_again(tmp_path: Path) -> None:
    path = str(tmp_path / "steps")
    StepFile(path).let_go(7)
    file = StepFile(path)
    assert (file.step, file.ask()) == (0, 0)
