"""What ps.py and collective.py have in common: their flags, the lines that they print, and how they save and resume.

training pass=4/5 batch=40/50 loss=0.312345 examples/s=5120      every few batches: the first pass of 5 is 1
Pass=3 Batch=50 samples=1000 loss=0.305678 examples/s=5087       at the end of a pass, which counts from 0
seen trainer=1 lines=1000 least=5 most=5 sha256=0f3a...          at the end: how often each line of the shard was
accuracy=0.917 loss=0.234567 on 600 held-out examples            at the end, by trainer 0

A program that is started again resumes after the pass of LAUNCHER_RESUME_DIR, and first prints that. `seen` counts
only what it has learned from since then. In an elastic job a trainer may have several shards: each has a line `seen`.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import paddle
from reviews import Reviews

DATA = Path(os.environ.get("LAUNCHER_DATA_DIR", "data"))
SHARDS = [Path(each) for each in os.environ.get("LAUNCHER_DATA_DIRS", "").split(os.pathsep) if each]  # elastic jobs
SAVE = Path(os.environ.get("LAUNCHER_SAVE_DIR", "output"))
RESUME = os.environ.get("LAUNCHER_RESUME_DIR", "")  # the folder of the newest whole pass, empty at the beginning
MODEL, WEIGHTS = "model.pdparams", "weights"  # the file, and the only table in it, with two numbers per word


def flags(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags of both programs. The peers come from variables."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=count, default=5, help="how often to go through the shard (default 5)")
    parser.add_argument("--batch-size", type=count, default=20, help="reviews of a shard in a batch (default 20)")
    parser.add_argument("--learning-rate", type=float, default=0.5, help="of plain SGD (default 0.5)")
    parser.add_argument("--seed", type=int, default=1, help="decides the order of the reviews (default 1)")
    parser.add_argument("--log-period", type=count, default=10, help="batches between lines (default 10)")
    return parser


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, 1 or more")
    return int(text)


def say(text: str) -> None:
    print(text, flush=True)


class Progress:
    """Print the loss and the speed of one pass, every few batches."""

    def __init__(self, number: int, passes: int, batches: int, period: int) -> None:
        self._number = number
        self._passes = passes
        self._batches = batches
        self._period = period
        self._begun = time.monotonic()
        self._losses: list[float] = []
        self._examples = 0

    def batch(self, loss: float, examples: int) -> None:
        """Count a batch that is done. `loss` is the mean of its examples."""
        self._losses.append(loss)
        self._examples += examples
        if len(self._losses) % self._period == 0:
            recent = float(np.mean(self._losses[-self._period :]))
            place = f"pass={self._number + 1}/{self._passes} batch={len(self._losses)}/{self._batches}"
            say(f"training {place} loss={recent:.6f} {self._speed()}")

    def end(self) -> None:
        loss = float(np.mean(self._losses))
        counted = f"Batch={len(self._losses)} samples={self._examples}"
        say(f"Pass={self._number} {counted} loss={loss:.6f} {self._speed()}")

    def _speed(self) -> str:
        return f"examples/s={self._examples / (time.monotonic() - self._begun):.0f}"


def numbered_shards(trainer: int, given: Sequence[Path] = ()) -> dict[int, Path]:
    """Return the shards of a trainer by their numbers. `given`: in place of those that the launcher names.

    In an elastic job the folder has the number of the shard, so the order of its reviews depends on no other number.
    """
    if SHARDS and not given:
        return {int(shard.name): shard for shard in SHARDS}
    return dict(enumerate(given or [DATA], start=trainer))


def say_seen(trainer: int, reviews: Reviews) -> None:
    """Print whether all lines of the shard were used equally often. `trainer`: the number of the shard."""
    least, most = reviews.times_seen.min(), reviews.times_seen.max()
    say(f"seen trainer={trainer} lines={len(reviews)} least={least} most={most} sha256={reviews.digest}")


def say_accuracy(scores: np.ndarray, reviews: Reviews) -> None:
    """Print accuracy and loss of the scores of both labels, for reviews that were not used in training."""
    right = scores[np.arange(len(reviews)), reviews.labels]
    wrong = scores[np.arange(len(reviews)), 1 - reviews.labels]
    loss = np.logaddexp(0, wrong - right).mean()
    say(f"accuracy={(right > wrong).mean():.3f} loss={loss:.6f} on {len(reviews)} held-out examples")


def first() -> int:
    """Return the pass to begin with: the one after the newest whole pass, 0 at the beginning."""
    if not RESUME:
        return 0
    found = re.fullmatch(r"pass-(\d{5,})", Path(RESUME).name)
    if not found:
        raise SystemExit(f"LAUNCHER_RESUME_DIR: {RESUME!r}: expected a folder pass-<number>, as in output/pass-00003")
    return int(found.group(1)) + 1


def left(wanted: int) -> range:
    """Return the remaining passes. Print a line if some passes are already saved."""
    passes = range(first(), wanted)
    if not passes:
        say(f"all {wanted} passes are there: nothing is left to train after {RESUME}")
    elif passes[0]:
        say(f"resumes with pass {passes[0]}, from the model of {RESUME}")
    return passes


def saved_weights() -> np.ndarray | None:
    """Return the weights of the newest whole pass, None at the beginning."""
    if first() == 0:
        return None
    weights: np.ndarray = paddle.load(str(Path(RESUME) / MODEL), return_numpy=True)[WEIGHTS]
    return weights


def save(number: int, weights: np.ndarray) -> None:
    """Save the model of a pass. It counts as soon as its folder has `done`, which is written last."""
    folder = SAVE / f"pass-{number:05d}"
    model, done = folder / MODEL, folder / "done"
    folder.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    _sync(folder)
    paddle.save({WEIGHTS: weights}, str(model))
    _sync(model, folder, SAVE)
    done.touch()
    _sync(done, folder)


def _sync(*paths: Path) -> None:
    """Sync files and folders to disk, so that they survive a power loss."""
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
