"""Signals that end or stop a view. They never leave the terminal in a state that the user has to repair."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Switchable(Protocol):
    """A drawing on a terminal that can be left, as for Ctrl-Z, and shown again."""

    def open(self) -> None: ...

    def close(self) -> None: ...


_drawing = False  # an exception now would leave half a drawing
_pending: int | None = None  # the ending signal that has arrived meanwhile
_is_stopping = False  # SIGTSTP has arrived meanwhile
_shown: Switchable | None = None  # what is on the terminal now


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
    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:  # a shell without job control ignores it
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, _stop)
    try:
        yield
    finally:
        _pending = None
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shown(view: Switchable) -> Iterator[None]:
    """Open and close a drawing. Ctrl-Z closes it until the process continues."""
    global _shown
    try:
        view.open()
        _shown = view
        yield
    finally:
        _shown = None
        view.close()


@contextmanager
def drawing() -> Iterator[None]:
    """Handle a signal only after the body, unless a second ending signal arrives."""
    global _drawing, _pending
    _drawing = True
    try:
        yield
    finally:
        _drawing = False
    if _pending is not None:
        number, _pending = _pending, None
        _raise(number)
    if _is_stopping:
        _stop(signal.SIGTSTP, None)


def _stop(number: int, _frame: FrameType | None) -> None:
    """Leave the terminal to the shell, and stop as without a handler."""
    global _is_stopping
    _is_stopping = _drawing
    if _drawing:
        return
    if _shown is not None:
        _shown.close()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)  # returns when the process continues, or at once if no shell could continue it
    signal.signal(number, _stop)
    if _shown is not None:
        _shown.open()


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
