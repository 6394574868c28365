"""The collective program of the quick start, in a job whose size changes: it records what each pass has learned from.

`counted.py FOLDER SECONDS`: before a pass is saved, each process writes a file `<pass>-<generation>-<rank>` to FOLDER,
with a line for each of its shards: number, fewest and most uses of a line, its digest. Each batch takes SECONDS more.
The training ends after the pass whose number is in FOLDER/enough.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import paddle
import paddle.distributed as dist
import passes  # type: ignore[import-not-found]
from collective import Trainer  # type: ignore[import-not-found]

MANY = 100_000
FOLDER, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
RANK = int(os.environ["PADDLE_TRAINER_ID"])


class Enough(Exception):
    """The last pass is saved."""


class Counted(Trainer):  # type: ignore[misc]
    def _learn(self, *arguments: Any) -> float:
        time.sleep(SECONDS)
        return float(super()._learn(*arguments))

    def record(self, number: int) -> None:
        """Write what the pass has learned from."""
        lines = []
        for each, shard in self._shards.items():
            lines.append(f"{each} {shard.times_seen.min()} {shard.times_seen.max()} {shard.digest}\n")
            shard.times_seen[:] = 0
        name = f"{number}-{os.environ['LAUNCHER_GENERATION']}-{RANK}"
        (FOLDER / f".{name}").write_text("".join(lines))
        (FOLDER / f".{name}").rename(FOLDER / name)

    def last_pass(self) -> int:
        """Return the last pass, as rank 0 sees it, after all processes have written their files."""
        enough = FOLDER / "enough"
        last = paddle.to_tensor([int(enough.read_text()) if enough.exists() else MANY])
        if self._count > 1:
            dist.broadcast(last, 0)
        return int(last.numpy()[0])

    def say_accuracy(self) -> None:
        if RANK == 0:
            passes.say_accuracy(self._network(paddle.to_tensor(self._test.words)).numpy(), self._test)


class Progress(passes.Progress):  # type: ignore[misc]
    """Ends the training before the first pass that is not wanted."""

    trainer: Counted
    last = MANY

    def __init__(self, number: int, *arguments: Any) -> None:
        if number > Progress.last:
            raise Enough
        super().__init__(number, *arguments)

    def end(self) -> None:
        super().end()
        Progress.trainer.record(self._number)
        Progress.last = Progress.trainer.last_pass()


def main() -> None:
    passes.Progress = Progress
    Progress.trainer = Counted([], learning_rate=0.5)
    try:
        Progress.trainer.train(MANY, batch_size=20, seed=1, log_period=10)
    except Enough:
        Progress.trainer.say_accuracy()


main()
