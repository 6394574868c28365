"""The child's side of launcher.base.helper: reads the request, sends messages, ends with the parent."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from typing import Any


class Answers:
    """Sends messages to the parent. Redirects all else that this process prints to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        threading.Thread(target=self._end_with_reader, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Ends this process if the parent does not read any more."""
        line = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._out, line) :]
        except BrokenPipeError:
            os._exit(0)

    def _end_with_reader(self) -> None:
        # The kernel reports the closed end of a killed launcher as an error, even if nothing is written here.
        # PR_SET_PDEATHSIG does not do: it fires at the end of the thread that started this process.
        poll = select.poll()
        poll.register(self._out, 0)
        poll.poll()
        os._exit(0)


def read_request() -> dict[str, Any]:
    """Read the request."""
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    return asked
