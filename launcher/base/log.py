"""The launcher's own messages. All go to the logger `launcher`. One handler shows them."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_KEPT = 1000  # lines that may wait while standard error is blocked
_LOGGER = "launcher"

AsLines = Callable[[str, str, str], list[bytes]]

_begun: set[int] = set()  # descriptors on which a process has begun a line and not ended it


@contextmanager
def shown_by(handler: logging.Handler) -> Iterator[None]:
    """Show all messages of level INFO and above by this handler only."""
    logger = logging.getLogger(_LOGGER)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextmanager
def also_shown_by(handler: logging.Handler) -> Iterator[None]:
    """Show messages by this handler, too."""
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def write_output(descriptor: int, data: bytes | memoryview) -> int:
    """Write output of a process, and return how many bytes were written.

    If it ends within a line, the next message that a `StderrHandler` writes there begins on a new line.
    """
    count = os.write(descriptor, data)
    if count and data[count - 1] == ord("\n"):
        _begun.discard(descriptor)
    elif count:
        _begun.add(descriptor)
    return count


def set_name(name: str) -> None:
    """Set the name with which all later lines begin, such as `rank 3`."""
    for handler in logging.getLogger(_LOGGER).handlers:
        handler.set_name(name)


class TextHandler(logging.Handler):
    """Call `write` with the text of each log message."""

    def __init__(self, write: Callable[[str], None], level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(_with_level(record.levelname.lower(), record.getMessage()))


class StderrHandler(logging.Handler):
    """Write lines with time and name. Never block the caller.

    A thread writes the lines. If more than 1000 lines wait, the oldest lines are dropped, and their number is written.

    as_lines: returns the lines, each with its end, for the level and the text of a message, and the name
    """

    def __init__(self, fd: int = 2, name: str = "rank ?", as_lines: AsLines | None = None) -> None:
        super().__init__()
        self.set_name(name)
        self._as_lines = as_lines or text_lines
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        lines = self._as_lines(record.levelname.lower(), record.getMessage(), str(self.name))
        with self._changed:
            self._lines += lines
            while len(self._lines) > _KEPT:
                self._lines.popleft()
                self._dropped += 1
            self._changed.notify()
        if self._thread is None:  # started by the first message, since the guardian must be forked before any thread
            with suppress(RuntimeError):  # no thread can be started: the next message tries again
                self.start()

    def start(self) -> None:
        """Start the thread before the first message. Raises RuntimeError if no thread can be started."""
        thread = threading.Thread(target=self._write_all, daemon=True, name="log")
        thread.start()
        self._thread = thread

    def close(self, timeout: float = 0.0) -> None:
        """Wait until all lines are written, for at most `timeout` seconds.

        The caller must call this last, since it blocks the caller.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
        elif self._lines:
            self._write_all()
        super().close()

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            try:
                self._write(line)
            except OSError:
                continue  # standard error is closed, and there is no other place for the line

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._lines:
                if self._closing:
                    return None
                self._changed.wait()
            if self._dropped:
                missing, self._dropped = self._dropped, 0
                text = f"{missing} messages are missing here: standard error was blocked"
                return b"".join(self._as_lines("warning", text, str(self.name)))
            return self._lines.popleft()

    def _write(self, line: bytes) -> None:
        if self._fd in _begun:
            _begun.discard(self._fd)
            line = b"\n" + line
        while line:
            try:
                line = line[os.write(self._fd, line) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self._fd, select.POLLOUT)
                poller.poll()


def text_lines(level: str, text: str, name: str) -> list[bytes]:
    """Return the lines of a message for a reader: with time and name."""
    head = f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{name}]"
    shown = _with_level(level, text).splitlines() or [""]
    return [f"{head} {line}\n".encode(errors="backslashreplace") for line in shown]


def _with_level(level: str, text: str) -> str:
    return text if level == "info" else f"warning: {text}"
