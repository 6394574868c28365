"""The pipes of one process, read as one output: standard output, and standard error if it has its own pipe."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence

_LONGEST_LINE = 64 * 1024


class Pipes:
    """One or two pipes. Only one thread may use them.

    Bytes of one pipe keep their order. Lines of both pipes are returned in the order in which they arrive here. If both
    pipes have bytes, their order is not known. Then whole lines of one pipe are returned before lines of the other one,
    so that no line is cut by a line of the other pipe, if the process has written it at once (at most PIPE_BUF).

    woken: a pipe that ends `wait` when it has bytes
    """

    def __init__(self, pipes: Sequence[int], woken: int) -> None:
        self._open = dict(enumerate(pipes))
        self._woken = woken
        self._current = 0  # the stream that is read next
        self._begun = dict.fromkeys(self._open, b"")  # lines that were read, and wait for their end
        self._without_end = 0  # bytes of the current stream without the end of a line, while the other one waits
        self._poller = _poller(*pipes, woken)
        self._pollers = [_poller(pipe) for pipe in pipes]
        for pipe in pipes:
            os.set_blocking(pipe, False)

    def read(self, memory: memoryview) -> tuple[int, int] | None:
        """Read bytes of one stream into the memory. Return their number, and the stream: 0 or 1.

        Return None if all pipes are empty. The number is 0 if all are closed by their writers.
        """
        streams = [self._current, 1 - self._current] if len(self._open) > 1 else [*self._open]
        for stream in streams:
            if count := self._read(stream, memory):
                if stream != self._current:
                    self._current, self._without_end = stream, 0
                return (self._used(memory, count) if len(self._open) > 1 else count), stream
        return None if self._open else (0, 0)

    def wait(self, seconds: float | None) -> None:
        """Wait until a pipe has bytes, or is closed, for at most this time."""
        self._poller.poll(None if seconds is None else 1000 * seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 64)

    def close(self) -> None:
        for stream in [*self._open]:
            self._close(stream)

    def _read(self, stream: int, memory: memoryview) -> int:
        """Return the number of bytes, or 0 if the pipe is empty or closed by its writers."""
        if stream not in self._open:
            return 0
        begun = self._begun[stream][: len(memory)]
        memory[: len(begun)] = begun
        self._begun[stream] = self._begun[stream][len(begun) :]
        if len(begun) == len(memory):
            return len(begun)
        try:
            count = os.readv(self._open[stream], [memory[len(begun) :]])
        except BlockingIOError:
            return len(begun)
        if count == 0:
            self._close(stream)
        return len(begun) + count

    def _used(self, memory: memoryview, count: int) -> int:
        """Return how many of these bytes of the current stream are used. Decide which stream is read next.

        If the other pipe has bytes, it is read next, and a line that has only begun here waits for its end.
        """
        if not self._has_bytes(1 - self._current):
            return count
        first = max(0, count - _LONGEST_LINE)
        used = first + bytes(memory[first:count]).rfind(b"\n") + 1
        if used > first:
            self._begun[self._current] = bytes(memory[used:count])
            count = used
        else:
            self._without_end += count
        if used > first or self._without_end >= _LONGEST_LINE:
            self._current, self._without_end = 1 - self._current, 0
        return count

    def _has_bytes(self, stream: int) -> bool:
        """Return whether a pipe has bytes, or was closed by its writers."""
        return bool(self._begun[stream] or self._pollers[stream].poll(0))

    def _close(self, stream: int) -> None:
        pipe = self._open.pop(stream)
        self._poller.unregister(pipe)
        os.close(pipe)


def _poller(*pipes: int) -> select.poll:
    poller = select.poll()
    for pipe in pipes:
        poller.register(pipe, select.POLLIN)
    return poller
