"""A program of the quick start in which a trainer is killed: `dies.py RANK batch|save PASS PROGRAM FLAGS...`.

In the middle of a pass, or with half of its model written; only in the first generation.
"""

import os
import runpy
import signal
import sys

import paddle

rank, where, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.argv = sys.argv[4:]
sys.path[0] = os.getcwd()

import passes  # type: ignore[import-not-found] # noqa: E402


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Progress(passes.Progress):  # type: ignore[misc]
    """Kill this trainer before the tenth batch."""

    def __init__(self, of_pass: int, passes: int, batches: int, period: int) -> None:
        super().__init__(of_pass, passes, batches, period)
        self._batches_left = 10 if of_pass == number else None

    def batch(self, loss: float, examples: int) -> None:
        super().batch(loss, examples)
        if self._batches_left is not None:
            self._batches_left -= 1
            if not self._batches_left:
                die()


def save(model: object, path: str) -> None:
    """Train as usual until this pass."""
    whole(model, path)
    if f"pass-{number:05d}" in path:
        os.truncate(path, os.path.getsize(path) // 2)
        die()


whole = paddle.save
first = os.environ.get("LAUNCHER_GENERATION", "0") == "0"
if first and os.environ.get("TRAINING_ROLE") != "PSERVER" and os.environ.get("PADDLE_TRAINER_ID", "0") == rank:
    if where == "batch":
        passes.Progress = Progress
    else:
        paddle.save = save
runpy.run_path(sys.argv[0], run_name="__main__")
