"""For training programs: print numbers that the launcher shows, such as loss and speed. Needs nothing but Python.

from launcher.train import log

log(step=10, loss=0.25, examples_per_second=512)
"""

from __future__ import annotations

import math
import sys

MARK = "launcher.train: "


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
