"""The bounds of numbers, times and texts. What one launcher accepts, all other launchers must be able to read.

Each value is checked where it enters the launcher: a variable, a file on the volume, the name of a folder. The gang's
protocol refuses values outside of the same bounds, both when it sends and when it receives them.
"""

from __future__ import annotations

from typing import TypeGuard

MAX_NUMBER = 2**31 - 1  # of a rank, a generation, a pass, an attempt
MAX_SECONDS = 1e9  # of a time in a message; all times are below it
MAX_TIMEOUT = 1e8  # of a time that a user sets: messages contain sums of a few of these
MAX_TEXT = 1024  # characters of a name, an address or an identity
MAX_JOB_ID = 200  # characters of a job's identity that a user sets: it names a folder on the volume
MAX_FILE_NAME = 255  # bytes, on all common file systems


def is_number(value: object) -> TypeGuard[int]:
    """Return whether the value is an integer from 0 to MAX_NUMBER."""
    return type(value) is int and 0 <= value <= MAX_NUMBER


def is_seconds(value: object) -> TypeGuard[float]:
    """Return whether the value is a time from 0 to less than MAX_SECONDS, as an integer or not."""
    return type(value) in (int, float) and 0 <= value < MAX_SECONDS  # type: ignore[operator]


def is_text(value: object) -> TypeGuard[str]:
    """Return whether the value is a printable text of at most MAX_TEXT characters. It may then be written to a log."""
    return isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()
