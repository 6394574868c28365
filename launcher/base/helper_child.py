"""The child's side of launcher.base.helper: read the request, answer in lines of JSON, end with the parent."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from typing import Any


class Answers:
    """Where a child says what it found. Anything else that it prints goes to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        threading.Thread(target=self._end_with_reader, daemon=True).start()

    def tell(self, message: dict[str, Any]) -> None:
        """Write one line. Ends this process when nobody reads any more."""
        line = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._out, line) :]
        except BrokenPipeError:
            os._exit(0)

    def _end_with_reader(self) -> None:
        # A killed launcher closes its end of the pipe, which shows here as an error even if nothing is written.
        # PR_SET_PDEATHSIG would not do: it fires at the end of the thread that started this process.
        poll = select.poll()
        poll.register(self._out, 0)
        poll.poll()
        os._exit(0)


def request() -> dict[str, Any]:
    """What this child was asked to do."""
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    return asked
