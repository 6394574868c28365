"""For training programs. Needs nothing but Python.

Print numbers that the launcher shows, such as loss and speed. In an elastic job, save and end when its size changes.

from launcher.train import log, should_stop

log(step=10, loss=0.25, examples_per_second=512)
if should_stop():
    save_checkpoint()
    sys.exit()
"""

from __future__ import annotations

import math
import os
import sys
import time

MARK = "launcher.train: "
_ASKED, _UNTIL, _STEP, _SIZE = 0, 1, 2, 3  # the numbers in the file of LAUNCHER_STEP_FILE, of 8 bytes each
_LOOK_EVERY = 0.005  # seconds


class _Steps:
    """The steps of this process, in a small file that the launcher of this pod reads and writes as well."""

    def __init__(self) -> None:
        self._count = 0
        self._numbers: memoryview | None = None
        import mmap  # only elastic jobs need it

        try:
            with open(os.environ["LAUNCHER_STEP_FILE"], "r+b") as file:
                self._numbers = memoryview(mmap.mmap(file.fileno(), 8 * _SIZE)).cast("q")
        except (KeyError, OSError, ValueError):
            return  # this job is not elastic, or no launcher has started this program

    def next(self) -> bool:
        numbers = self._numbers
        if numbers is None:
            return False
        self._count += 1
        numbers[_STEP] = self._count
        while numbers[_ASKED] and not numbers[_UNTIL]:  # the launchers agree on a step; this takes some milliseconds
            time.sleep(_LOOK_EVERY)
        return 0 < numbers[_UNTIL] <= self._count


_steps: _Steps | None = None


def should_stop() -> bool:
    """Return whether the program should save and end now, with exit code 0, since the job changes its size.

    Call it once after each step, in each trainer. All trainers get True after the same step. Without an elastic job it
    always returns False.
    """
    global _steps
    if _steps is None:
        _steps = _Steps()
    return _steps.next()


def log(**numbers: object) -> None:
    """Print the numbers on one line of standard output, as in `launcher.train: step=10 loss=0.25`. Never raises.

    docs/numbers.md lists the names that the launcher reads. Other names are only printed. A value may be a number, an
    array or a tensor with one element, or a text that is a number. Every other value is left out.
    """
    try:
        texts = [f"{name}={text}" for name, value in numbers.items() if (text := _text(value))]
        if texts:
            print(f"{MARK}{' '.join(texts)}\n", end="", flush=True)  # one write, so that no other output divides it
    except Exception as error:
        _warn(error)


def _text(value: object) -> str:
    """Return a number as text, or an empty text for a value that is no number."""
    try:
        if hasattr(value, "item"):
            value = value.item()  # of an array or a tensor; in its own precision, 0.1 of 32 bits is 0.10000000149...
        if isinstance(value, int):
            return str(int(value))
        number = float(value)  # type: ignore[arg-type]  # what cannot be a number raises
    except Exception:  # an object of a training program may raise any exception
        return ""
    if math.isfinite(number):
        return f"{number:.9g}"
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def _warn(error: Exception) -> None:
    """Say why nothing was printed: standard output may be closed or full."""
    try:
        print(f"launcher.train: cannot print: {error}", file=sys.stderr)
    except Exception:
        return
