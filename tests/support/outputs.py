"""Helpers for tests of a process's output: a writer, its output, and a pipe as standard output."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from launcher.model import Numbers, Process
from launcher.paddle.numbers import NumberFinder
from launcher.processes.output import Output
from launcher.processes.sinks import Limits
from tests.support.supervising import program

MEBIBYTE = 1024 * 1024
PIECE = 65536
_MARK = re.compile(rb"==== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d attempt 1, pod p-0 ====\n")
SHORT_LIMITS = Limits(stall=0.1, retry=0.02)


class Writer:
    """Writes to the pipe of an output, instead of a process."""

    def __init__(self, output: Output) -> None:
        self.pipe, self.errors = output.attach()
        self.written = 0

    def write(self, data: bytes) -> None:
        """Write as a process does: wait while the pipe is full."""
        for begin in range(0, len(data), PIECE):
            self.written += os.write(self.pipe, data[begin : begin + PIECE])

    def write_in_thread(self, data: bytes) -> None:
        threading.Thread(target=self.write, args=(data,), daemon=True).start()

    def close(self) -> None:
        for pipe in {self.pipe, self.errors}:
            os.close(pipe)


class Case:
    """An output, its writer, and the passes and numbers that the output has found."""

    def __init__(
        self,
        limits: Limits | None = None,
        stdout: int = 1,
        stderr: int | None = None,
        process: Process | None = None,
        format_line: Callable[[bytes], bytes] | None = None,
        turns: Sequence[threading.Lock] = (),
    ) -> None:
        self.passes: list[int] = []
        self.numbers: list[Numbers] = []
        process = process or program("true", echo=stdout != 1, pass_mark=b"Pass=")
        self.output = Output(
            process,
            on_pass=self.passes.append,
            on_numbers=self.numbers.append,
            numbers=NumberFinder(),
            stdout=stdout,
            stderr=stdout if stderr is None else stderr,
            format_line=format_line,
            turns=turns,
            limits=limits,
        )
        self.writer = Writer(self.output)

    def set_folder(self, folder: Path) -> Path:
        self.output.set_folder(str(folder), "attempt 1, pod p-0")
        return folder / "train.log"

    async def finish(self, timeout: float = 10) -> int:
        self.writer.close()
        await self.output.detach(1)
        return await self.output.close(timeout)


@contextlib.asynccontextmanager
async def reading_end() -> AsyncIterator[tuple[int, Callable[[], bytes]]]:
    """Yield a pipe for standard output, and a function that reads it and returns all that it has read."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    received = bytearray()

    def read() -> bytes:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(reading, MEBIBYTE):
                received.extend(data)
        return bytes(received)

    try:
        yield writing, read
    finally:
        for fd in (reading, writing):
            with contextlib.suppress(OSError):
                os.close(fd)


def numbered(size: int) -> bytes:
    """Return lines that are all different, so that a lost, repeated or moved line is noticed."""
    return b"".join(b"line %07d\n" % number for number in range(size // 13))


def body(log: Path) -> bytes:
    """Return the log without the line that marks the attempt. This line must be in the log exactly once."""
    content = log.read_bytes()
    assert len(_MARK.findall(content)) == 1
    return _MARK.sub(b"", content)
