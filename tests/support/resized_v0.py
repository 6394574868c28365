"""A job of Paddle v0 whose size changes at random moments, and what the logs of its trainers say about each pass."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.support.jobs import Job
from tests.support.nodes import Nodes
from tests.support.paths import STANDIN
from tests.support.resized import MOST, Story

SECONDS = "0.3"  # of a batch
TOLERANCE = 0.03  # of the share of test lines that the model is right about
FLAGS = ("--config=trainer_config.lr.py", "--log_period=1")
MANY = "--num_passes=100000"
_GENERATION = re.compile(r"^==== \S+ \S+ generation (\d+), pod ")
_BATCH = re.compile(r" (?:Pass=(\d+) )?Batch=\d+ samples=(\d+) ")
_DROPPED = {1: 1, 2: 3, 3: 7}  # lines of each shard that are dropped: then only each shard once has all lines


class LoggedStory(Story):
    """The stand-in logs the samples of each batch and of each pass."""

    def cut_shards(self) -> None:
        """Give each shard another number of lines."""
        for shard, count in _DROPPED.items():
            path = self._job / str(shard) / "data" / "train.txt"
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:-count]))

    def passes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for generation, number, _ in self._samples():
            found[number] = max(generation, found.get(number, -1))
        return {number: generation for number, generation in found.items() if self._saved(number)}

    def assert_each_line_once_per_pass(self) -> int:
        """Check that the trainers of each saved pass have used all lines. Return the number of passes."""
        passes, used = self.passes(), Counter[tuple[int, int]]()
        for generation, number, samples in self._samples():
            used[generation, number] += samples
        shards = [(self._job / str(shard) / "data" / "train.txt").read_text() for shard in range(MOST)]
        lines = sum(text.count("\n") for text in shards)
        assert sorted(passes) == list(range(max(passes) + 1)), "a pass is missing"
        wrong = {number: used[generation, number] for number, generation in passes.items()}
        assert {number: count for number, count in wrong.items() if count != lines} == {}, lines
        return len(passes)

    def right(self, folder: Path) -> float:
        """Return the share of the test lines that a saved model is right about."""
        words = [folder, self._job / "quick_start" / "dict.txt", self._job / "0" / "data" / "test.txt"]
        done = subprocess.run(
            [sys.executable, STANDIN / "evaluate.py", *words], capture_output=True, text=True, check=True
        )
        return float(done.stdout.split()[-1])

    def right_of_fixed_size(self, folder: Path, passes: int) -> float:
        """Return the same for a job of MOST trainers on this machine, after as many passes."""
        volume = folder / "volume"
        fixed = volume / "quick-start"
        volume.mkdir(parents=True)
        subprocess.run(["cp", "-r", self._job, fixed], check=True)
        subprocess.run(["rm", "-rf", fixed / "output"], check=True)
        with Nodes(MOST) as nodes:
            job = Job(nodes, volume, folder, MOST).start(flags=(*FLAGS, f"--num_passes={passes}"))
            assert job.codes(120) == [0] * MOST, job.stderr()
        return self.right(fixed / "output" / f"pass-{passes - 1:05d}")

    def _saved(self, number: int) -> bool:
        return (self._job / "output" / f"pass-{number:05d}" / "done").exists()

    def _samples(self) -> list[tuple[int, int, int]]:
        """Return generation, pass and samples of each pass of each trainer. The last pass may lack its last line."""
        found = []
        for log in (self._job / "output").glob("node_*/train.log*"):
            generation, number, samples = -1, None, 0
            for line in log.read_text().splitlines():
                if begins := _GENERATION.match(line):
                    if number is not None and samples:
                        found.append((generation, number, samples))
                    generation, number, samples = int(begins[1]), None, 0
                elif batch := _BATCH.search(line):
                    samples = int(batch[2])
                    if batch[1]:
                        found.append((generation, int(batch[1]), samples))
                        number, samples = int(batch[1]) + 1, 0
            if number is not None and samples:
                found.append((generation, number, samples))
        return found
