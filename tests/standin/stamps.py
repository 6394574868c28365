"""Record what a trainer does and when, by the monotonic clock that all processes of a machine share."""

from __future__ import annotations

import os
import time


def leave(trainer: int, word: str, number: int) -> None:
    """Append a line to the file STANDIN_STAMPS, if set: nanoseconds, pod, pid, trainer, word, number."""
    path = os.environ.get("STANDIN_STAMPS")
    if not path:
        return
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    line = f"{now} {os.environ.get('POD_NAME', '-')} {os.getpid()} {trainer} {word} {number}\n"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
    except OSError:
        pass
