"""A job whose size changes at random moments, and what tests/wheels/programs/counted.py has recorded about it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.support.jobs import JOB, make_volume
from tests.support.paths import REPOSITORY

LEAST, MOST = 2, 4
CHANGES = int(os.environ.get("SIZE_CHANGES", "4"))  # 20 for the figures of docs/elastic.md
TOLERANCE = 0.00001  # of the loss, as for the quick start
WITHIN = 180.0  # seconds for one change
_LINES, _LONGEST_PAUSE, _BATCH = 600, 5.0, "0.25"
_PROGRAM = REPOSITORY / "tests" / "wheels" / "programs" / "counted.py"
_LOSS = re.compile(r"^accuracy=[\d.]+ loss=([\d.]+) on", re.MULTILINE)


def make_resized(folder: Path) -> Path:
    """Return a volume with a shard for each trainer that may come, the program, and a folder for its records."""
    folder.mkdir(exist_ok=True)
    volume = make_volume(folder, nodes=MOST, lines=_LINES)
    shutil.copy(_PROGRAM, volume / JOB / "quick_start")
    (volume / JOB / "counted").mkdir()
    return volume


def program(job: str) -> tuple[str, ...]:
    """Return the words after python. `job`: the job's folder, as the program sees it."""
    return ("counted.py", f"{job}/counted", _BATCH)


def targets() -> Iterator[int]:
    """Yield the sizes after each change: 3, 4, 3, 2 and again."""
    return islice(cycle((3, 4, 3, 2)), CHANGES)


class Story:
    """The changes of one job.

    job: its folder on the volume
    scale: sets the number of members
    shown: returns what a failure shows
    """

    def __init__(self, job: Path, scale: Callable[[int], None], shown: Callable[[], str]) -> None:
        self._job = job
        self._scale = scale
        self._shown = shown
        self._random = random.Random(17)
        self.seconds: list[tuple[int, float]] = []

    def play(self) -> None:
        """Change the size at random moments. Each change must take effect within WITHIN seconds."""
        self._until(lambda: self._trains_with(2))
        for size in targets():
            time.sleep(self._random.uniform(0, _LONGEST_PAUSE))
            began = time.monotonic()
            self._scale(size)
            self._until(lambda size=size: self._trains_with(size))  # type: ignore[misc]
            self.seconds.append((size, round(time.monotonic() - began, 1)))

    def complete(self) -> None:
        """Let the job end after two more passes, and wait for its end."""
        (self._counted / "enough").write_text(str(max(self.passes()) + 2))
        self._until(lambda: _status(self._job).get("phase") == "complete")

    def assert_each_line_once_per_pass(self) -> int:
        """Check each pass that counts: its trainers have used each line of each shard once. Return their number."""
        passes = self.passes()
        last = max(passes)
        assert sorted(passes) == list(range(last + 1)), "a pass is missing"
        wanted = [f"{shard} 1 1 {_digest(self._job, shard)}" for shard in range(MOST)]
        for number, generation in passes.items():
            files = self._counted.glob(f"{number}-{generation}-*")
            lines = [line for file in files for line in file.read_text().splitlines()]
            assert sorted(lines) == wanted, (number, generation, lines)
            assert (self._job / "output" / f"pass-{number:05d}" / "done").exists(), number
        history = generations(self._job)
        assert [each["after_pass"] for each in history[1:]] == sorted(each["after_pass"] for each in history[1:])
        return last + 1

    def loss(self) -> float:
        """Return the loss that the last trainer of rank 0 has printed."""
        logs = "".join(path.read_text() for path in sorted((self._job / "output" / "node_0").glob("train.log*")))
        return float(_LOSS.findall(logs)[-1])

    def loss_of_one(self, python: str, passes: int) -> float:
        """Return the loss of one process that learns from all shards, in as many passes."""
        shards = [f"--data={self._job / str(shard) / 'data'}" for shard in range(MOST)]
        done = subprocess.run(
            [python, "collective.py", f"--passes={passes}", *shards],
            cwd=self._job / "quick_start",
            env={"PATH": os.environ["PATH"], "LAUNCHER_SAVE_DIR": str(self._job / "alone")},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return float(_LOSS.findall(done.stdout)[-1])

    @property
    def _counted(self) -> Path:
        return self._job / "counted"

    def passes(self) -> dict[int, int]:
        """Return each pass that was trained, with the last generation that has trained it."""
        found: dict[int, int] = {}
        for path in self._counted.glob("[0-9]*-[0-9]*-[0-9]*"):
            number, generation, _ = map(int, path.name.split("-"))
            found[number] = max(generation, found.get(number, -1))
        return found

    def _trains_with(self, size: int) -> bool:
        history = generations(self._job)
        if not history or history[-1]["trainers"] != size:
            return False
        return history[-1]["number"] in self.passes().values()

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN
        while not holds():
            assert time.monotonic() < deadline, f"{self.seconds}\n{self._shown()}"
            time.sleep(0.05)


def generations(job: Path) -> list[dict[str, Any]]:
    path = job / "output" / "job.json"
    return list(json.loads(path.read_text())["generations"]) if path.exists() else []


def _status(job: Path) -> dict[str, Any]:
    path = job / "output" / "node_0" / "status.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _digest(job: Path, shard: int) -> str:
    return hashlib.sha256((job / str(shard) / "data" / "train.txt").read_bytes()).hexdigest()
