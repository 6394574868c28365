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


def set_name(name: str) -> None:
    """Set the name that the following lines begin with, such as `rank 3`."""
    for handler in logging.getLogger(_LOGGER).handlers:
        handler.set_name(name)


class TextHandler(logging.Handler):
    """Call `write` with the text of each log message."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(_text(record))


class StderrHandler(logging.Handler):
    """Write lines with time and name. Never block the caller.

    A thread writes the lines. If more than 1000 lines wait, the oldest lines are dropped, and their number is written.
    """

    def __init__(self, fd: int = 2, name: str = "rank ?") -> None:
        super().__init__()
        self.set_name(name)
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{self.name}]"
        with self._changed:
            for line in _text(record).splitlines() or [""]:
                self._lines.append(f"{head} {line}\n".encode(errors="backslashreplace"))
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

        This blocks the caller, so the caller must call it last.
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
                line = b"(%d messages are missing here: standard error was blocked)\n" % self._dropped
                self._dropped = 0
                return line
            return self._lines.popleft()

    def _write(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._fd, line) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self._fd, select.POLLOUT)
                poller.poll()


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    return f"warning: {text}" if record.levelno >= logging.WARNING else text
