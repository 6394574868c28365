"""The launcher's own messages on standard error, a line each with time and who says it, never holding up who speaks."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque

_KEPT = 1000  # lines that may wait while standard error takes none


class Say:
    """Call it with a message, from any thread. A thread writes; when too much waits, the oldest lines are dropped."""

    def __init__(self, fd: int = 2, name: str = "rank ?") -> None:
        self._fd = fd
        self._name = name
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def set_name(self, name: str) -> None:
        """From now on the lines carry this name."""
        self._name = name

    def __call__(self, text: str) -> None:
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{self._name}]"
        with self._changed:
            for line in text.splitlines() or [""]:
                self._lines.append(f"{head} {line}\n".encode(errors="backslashreplace"))
            while len(self._lines) > _KEPT:
                self._lines.popleft()
                self._dropped += 1
            if self._thread is None:  # not before the first word: the guardian is forked before any thread is there
                self._thread = threading.Thread(target=self._write_all, daemon=True, name="say")
                self._thread.start()
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Wait until all is written, at most `timeout` seconds. This blocks: it is the last thing to do."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            try:
                self._write(line)
            except OSError:
                continue  # nobody listens any more: there is no other place to say it

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._lines:
                if self._closing:
                    return None
                self._changed.wait()
            if self._dropped:
                line = b"(%d messages are missing here: standard error did not take them)\n" % self._dropped
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
