"""The collective program of the quick start, in a job whose size changes: it records what each pass has learned from.

`counted.py FOLDER SECONDS`: before a pass is saved, each process writes a file `<pass>-<generation>-<rank>` to FOLDER,
with a line for each of its shards: number, fewest and most uses of a line, its digest. Each batch takes SECONDS more.
The training ends after the pass whose number FOLDER/enough has.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import paddle.distributed as dist
import passes  # type: ignore[import-not-found]
from collective import Trainer  # type: ignore[import-not-found]

MANY = 100_000


class Enough(Exception):
    """The last pass is saved."""


class Counted(Trainer):  # type: ignore[misc]
    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(passes.shards(), learning_rate=0.5)
        self._folder = folder
        self._seconds = seconds

    def end_pass(self, number: int) -> None:
        self._record(number)
        (last,) = self._over_all([self._last()], dist.ReduceOp.MAX)  # and all processes have written their files
        super().end_pass(number)
        if number >= last:
            raise Enough

    def _record(self, number: int) -> None:
        lines = []
        for each, shard in self._shards.items():
            lines.append(f"{each} {shard.times_seen.min()} {shard.times_seen.max()} {shard.digest}\n")
            shard.times_seen[:] = 0
        name = f"{number}-{os.environ['LAUNCHER_GENERATION']}-{self._rank}"
        (self._folder / f".{name}").write_text("".join(lines))
        (self._folder / f".{name}").rename(self._folder / name)

    def _last(self) -> int:
        """Return the last pass, as rank 0 sees it. The others must not decide: they may see the file earlier."""
        file = self._folder / "enough"
        if self._rank != 0:
            return 0
        return int(file.read_text()) if file.exists() else MANY

    def _learn(self, parts: Sequence[tuple[np.ndarray, np.ndarray]], everywhere: int) -> float:
        time.sleep(self._seconds)
        return float(super()._learn(parts, everywhere))


def main() -> None:
    trainer = Counted(Path(sys.argv[1]), float(sys.argv[2]))
    try:
        trainer.train(MANY, batch_size=20, seed=1, log_period=10)
    except Enough:
        trainer.say_accuracy()


main()
