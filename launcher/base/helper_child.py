"""The child's side of launcher.base.helper: read the request, send messages, end when the parent ends."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from typing import Any

from launcher.base import shortage


class Answers:
    """Send messages to the parent by standard output. Redirect all other output of this process to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        try:
            threading.Thread(target=self._end_with_reader, daemon=True).start()
        except RuntimeError:
            sys.exit(shortage.no_thread().message)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. If the parent has closed the pipe, end this process."""
        line = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._out, line) :]
        except BrokenPipeError:
            os._exit(0)

    def _end_with_reader(self) -> None:
        # When the launcher dies, its end of the pipe is closed. The poll returns then, even if nothing is written.
        # PR_SET_PDEATHSIG is not usable: it fires when the thread that started this process ends.
        poll = select.poll()
        poll.register(self._out, 0)
        poll.poll()
        os._exit(0)


def read_request() -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    return asked
