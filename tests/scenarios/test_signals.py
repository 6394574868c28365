"""Signals of a real launcher, as process 1 and as any other process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launcher.run.signals import STOPS
from tests.support.jobs import until
from tests.support.paths import REPOSITORY
from tests.support.supervising import needs_root

PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
TRAINS = """
import signal, sys, time
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH):
    signal.signal(number, lambda number, _: print("got", signal.Signals(number).name, flush=True))
print("trains", flush=True)
while True:
    time.sleep(0.01)
"""


class Alone:
    """A launcher with one trainer, and without a volume."""

    def __init__(self, folder: Path, *before: str, program: str = TRAINS) -> None:
        self._errors = folder / "stderr"
        self._output = folder / "stdout"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LAUNCHER_WORKDIR": str(folder)}
        argv = [*before, sys.executable, "-m", "launcher", "run", "--", sys.executable, "-c", program]
        with self._output.open("wb") as stdout, self._errors.open("wb") as stderr:
            self.started = subprocess.Popen(argv, env=environment, stdout=stdout, stderr=stderr)
        self._is_below = bool(before)

    def send(self, number: int) -> None:
        """Send a signal to the launcher."""
        process = psutil.Process(self.started.pid)
        (process.children()[0] if self._is_below else process).send_signal(number)

    def prints(self, word: str) -> bool:
        until(lambda: word in self._output.read_text(), what=f"{word}: {self._errors.read_text()}")
        return True

    def says(self, word: str) -> bool:
        until(lambda: word in self._errors.read_text(), what=f"{word}: {self._errors.read_text()}")
        return True


@pytest.fixture(params=[(), pytest.param(PROCESS_1, marks=needs_root)], ids=["not process 1", "process 1"])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Alone]:
    alone = Alone(tmp_path, *request.param)
    yield alone
    alone.started.kill()
    alone.started.wait()


def test_signals_for_the_trainer_reach_it_and_end_nothing(alone: Alone) -> None:
    assert alone.prints("trains")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH):
        alone.send(number)
        assert alone.prints(f"got {number.name}")
    alone.send(signal.SIGINT)
    assert alone.started.wait(30) == 143, "SIGINT is like SIGTERM"


def test_the_image_is_stopped_by_a_signal_that_stops_the_launcher() -> None:
    """The base image may have another one, such as SIGQUIT, which is passed on to the trainers."""
    of_image = (REPOSITORY / "docker" / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    (name,) = re.findall(r"^STOPSIGNAL (\w+)$", of_image, re.MULTILINE)
    assert signal.Signals[name] in STOPS


def test_a_trainer_without_a_handler_outlives_a_signal(tmp_path: Path) -> None:
    alone = Alone(tmp_path, program="import time; print('trains', flush=True); time.sleep(1000)")
    try:
        assert alone.prints("trains")
        alone.send(signal.SIGUSR1)
        assert alone.says("SIGUSR1 is not sent to any process")
        alone.send(signal.SIGTERM)
        assert alone.started.wait(30) == 143
    finally:
        alone.started.kill()
        alone.started.wait()
