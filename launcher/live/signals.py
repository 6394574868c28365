"""Signals that end a view. They never leave the terminal in a state that the user has to repair."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_drawing = False  # an exception now would leave half a drawing
_pending: int | None = None  # the signal that has arrived meanwhile


class Interrupted(KeyboardInterrupt):
    """A signal ends the view."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def ending_signals() -> Iterator[None]:
    """Raise Interrupted in the main thread for each signal that ends a command, so that it restores the terminal."""
    global _pending
    before = {number: signal.signal(number, _end) for number in _ENDING}
    try:
        yield
    finally:
        _pending = None
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def drawing() -> Iterator[None]:
    """Raise Interrupted only after the body, unless a second signal arrives."""
    global _drawing, _pending
    _drawing = True
    try:
        yield
    finally:
        _drawing = False
    if _pending is not None:
        number, _pending = _pending, None
        _raise(number)


def _end(number: int, _frame: FrameType | None) -> None:
    global _drawing, _pending
    if _drawing and _pending is None:
        _pending = number
        return
    _drawing, _pending = False, None
    _raise(number)


def _raise(number: int) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)  # another one must not interrupt the restoring
    raise Interrupted(number)
