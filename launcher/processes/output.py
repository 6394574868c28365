"""Read the output of one process, write it to a log file and to the standard streams, and keep its last lines."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from launcher.base.aio import run_in_own_thread, wait_within
from launcher.errors import Failure
from launcher.model import Numbers, Process
from launcher.processes.buffer import Buffer
from launcher.processes.pipes import Pipes
from launcher.processes.sinks import Limits, LogFile, Sink, StandardStreams

log = logging.getLogger(__name__)

TAIL_LINES = 20
TAIL_BYTES = 2048
RECENT_BYTES = 64 * 1024  # the reason of a death may be followed by long stacks and by lines of a nested launcher

_ERROR_LINES = TAIL_LINES // 2
_ERRORS_AGE = 1.0  # seconds
_RECENT_ERROR_BYTES = 16 * 1024

_PIPE_SIZE = 1024 * 1024  # the maximum without privileges
_DIGITS = 20  # a pass number has fewer digits


class NumbersReader(Protocol):
    """Finds numbers in an output. All calls come from one thread. `paddle.NumberFinder` is the only one."""

    def newest_in(self, data: bytearray, begin: int, end: int, pass_at: int | None) -> Numbers | None: ...
    def rest(self, is_end: bool) -> Numbers | None: ...
    def due_in(self) -> float | None: ...


class Output:
    """The output of a process. Each retry of the process attaches again and continues the same log.

    on_pass: called on the event loop with each new pass number
    on_numbers: called on the event loop with the newest numbers that `numbers` finds, a few times per second
    on_output: called in a thread after each read
    stdout, stderr: where the launcher's standard output and standard error go
    format_line, turns: see StandardStreams

    If the output is copied there, the process has a pipe for each of the two, unless both lead to the same file: then
    one pipe keeps the exact order. All other processes have one pipe.
    """

    def __init__(
        self,
        process: Process,
        *,
        on_pass: Callable[[int], None],
        on_output: Callable[[], None] = lambda: None,
        on_numbers: Callable[[Numbers], None] = lambda numbers: None,
        numbers: NumbersReader | None = None,
        stdout: int = 1,
        stderr: int = 2,
        format_line: Callable[[bytes], bytes] | None = None,
        turns: Sequence[threading.Lock] = (),
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self._loop = asyncio.get_running_loop()
        self._on_pass = on_pass
        self._on_numbers = on_numbers
        self._numbers = numbers
        self._on_output = on_output
        self._is_split = process.echo and not _is_same_file(stdout, stderr)
        self._buffer = Buffer(limits.memory, spare=2 * _PIPE_SIZE if self._is_split else _PIPE_SIZE)
        self._tail = Tail()
        self._errors = Tail(_RECENT_ERROR_BYTES)  # only of standard error, if it has its own pipe
        self._read_at = self._errors_read_at = 0.0
        self._passes = PassFinder(process.pass_mark)
        self._log: LogFile | None = LogFile(process.log, self._buffer, limits)
        self._sinks: list[Sink] = [self._log]
        if process.echo:
            fds = (stdout, stderr) if self._is_split else (stdout,)
            self._sinks.append(StandardStreams(fds, self._buffer, limits, format_line, turns))
        self._writing: list[asyncio.Future[None]] = []
        self._reader: _Reader | None = None
        self._stall_timer = self._loop.call_later(1, self._check_stalls)

    def set_folder(self, folder: str | None, mark: str) -> None:
        """Write the log to this folder, after a line with `mark`. If the folder is None, write no log."""
        if self._log is None:
            return
        if folder is None:
            self._log.give_up()
        else:
            self._log.set_folder(folder, mark)
        self._log = None

    def attach(self) -> tuple[int, int]:
        """Open one or two pipes and read from them. Raises Failure, OSError.

        Return the writing ends for standard output and standard error of the process. One pipe is returned twice.
        """
        for sink in self._sinks[len(self._writing) :]:
            self._writing.append(run_in_own_thread(sink.run))
        with contextlib.ExitStack() as opened:
            pipes = []
            for _ in range(1 + self._is_split):
                pipes.append(os.pipe2(os.O_CLOEXEC))
                for end in pipes[-1]:
                    opened.callback(os.close, end)
                with contextlib.suppress(OSError):  # this user's pipe memory is used up: keep the default size
                    fcntl.fcntl(pipes[-1][1], fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
            self._reader = _Reader([reading for reading, _ in pipes], self._buffer, self._handle, self._pause)
            opened.pop_all()
        return pipes[0][1], pipes[-1][1]

    async def read_rest(self, timeout: float) -> None:
        """Wait until all output of a dead process has been read, for at most `timeout` seconds."""
        if self._reader is not None:
            await self._reader.read_rest(timeout)

    async def detach(self, timeout: float) -> None:
        """Wait until all writers have closed the pipe or the time limit has passed. Then close the pipe.

        After this call, nothing is read.
        """
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close(timeout)

    def traffic(self) -> tuple[int, int]:
        """Return how many bytes were read, and how many of them are not in the log file yet."""
        return self._buffer.size(), self._sinks[0].pending()

    def tail(self) -> tuple[str, ...]:
        """Return the last lines: at most 20, and at most 2 KiB.

        Lines of standard error that are not older than a second are always among them, at the end if necessary: a
        process that dies may have filled the other pipe with lines that were written before, and are read after them.
        """
        lines, errors = self._tail.lines(), self._late_errors(_ERROR_LINES)
        if not errors or errors[-1] in lines:
            return lines
        return self._tail.lines(TAIL_LINES - len(errors), TAIL_BYTES // 2) + errors

    def recent_lines(self) -> tuple[str, ...]:
        """Return all lines that are kept: at least the last 64 KiB of the output, and late lines of standard error."""
        lines, errors = self._tail.recent_lines(), self._late_errors(1)
        return lines if not errors or errors[-1] in lines else lines + self._errors.recent_lines()

    def _late_errors(self, most: int) -> tuple[str, ...]:
        if self._read_at - self._errors_read_at > _ERRORS_AGE:
            return ()
        return self._errors.lines(most, TAIL_BYTES // 2)

    async def close(self, timeout: float) -> int:
        """Write all pending output, then stop. Log and return how many bytes were lost."""
        self._buffer.finish()
        lost = self._give_up([self._log]) if self._log is not None else 0  # the log's folder never became known
        if self._writing:
            await asyncio.wait(self._writing, timeout=timeout)
        self._stall_timer.cancel()
        return lost + self._give_up(self._sinks)

    def _give_up(self, sinks: Sequence[Sink]) -> int:
        lost = 0
        for sink in sinks:
            if pending := sink.pending():
                log.info(f"{pending} bytes of output are lost, because they could not be written to {sink.name}")
            lost += pending
            sink.give_up()
        return lost

    def _check_stalls(self) -> None:
        for sink in self._sinks:
            sink.check_stall()
        self._stall_timer = self._loop.call_later(1, self._check_stalls)

    def _handle(self, data: bytearray, begin: int, end: int, stream: int) -> None:
        """Handle new output. Called in the reader's thread."""
        self._tail.add(data, begin, end)
        self._read_at = time.monotonic()
        if stream:
            self._errors.add(data, begin, end)
            self._errors_read_at = self._read_at
        self._on_output()
        number = self._passes.last_in(data, begin, end)
        if self._numbers is not None:
            self._tell(self._numbers.newest_in(data, begin, end, None if number is None else self._passes.at))
        if number is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_pass, number)

    def _pause(self, is_end: bool) -> float | None:
        """Return the seconds after which to call again if there is no output, or None. Called in the reader's thread.

        is_end: the process is dead, or has closed its output
        """
        if self._numbers is None:
            return None
        self._tell(self._numbers.rest(is_end))
        return self._numbers.due_in()

    def _tell(self, numbers: Numbers | None) -> None:
        if numbers is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_numbers, numbers)


def _is_same_file(one: int, other: int) -> bool:
    """Return whether two descriptors lead to the same file, as on a terminal, or after `2>&1`."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


class _Reader:
    """The thread that reads the pipes of one process.

    pause: called when all pipes are empty. Returns the seconds after which to call again, or None
    """

    def __init__(
        self,
        pipes: Sequence[int],
        buffer: Buffer,
        handle: Callable[[bytearray, int, int, int], None],
        pause: Callable[[bool], float | None],
    ) -> None:
        self._buffer = buffer
        self._handle = handle
        self._pause = pause
        self._dead = threading.Event()  # the process has ended: do not wait for the sinks
        self._stop = threading.Event()
        self._empty_awaited = False
        self._empty = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._woken, self._waker = os.pipe()  # not eventfd, which some sandboxes deny
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._pipes = Pipes(pipes, self._woken)
        try:
            self._done = run_in_own_thread(self._read)
        except Failure:
            self._close_waker()
            raise

    async def read_rest(self, timeout: float) -> None:
        """Wait until all pipes are empty or closed."""
        self._empty_awaited = True
        self._dead.set()
        self._wake()
        with contextlib.suppress(asyncio.TimeoutError):
            await wait_within(self._empty.wait(), timeout)

    async def close(self, timeout: float) -> None:
        """Wait until all writers have closed the pipe or the time limit has passed, then stop reading."""
        self._dead.set()
        self._wake()
        await asyncio.wait([self._done], timeout=timeout)
        self._stop.set()
        self._wake()
        await self._done  # the thread cannot hang: `_wake` ends each of its waits
        self._close_waker()

    def _close_waker(self) -> None:
        os.close(self._woken)
        os.close(self._waker)

    def _wake(self) -> None:
        self._buffer.wake()
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so the thread will wake up
            os.write(self._waker, b"w")

    def _read(self) -> None:
        left = _PIPE_SIZE  # bytes to read after the stop: a process that still has the pipe may never stop writing
        try:
            while left > 0 and (memory := self._buffer.reserve(self._stop, self._dead)) is not None:
                empty_awaited, stopping = self._empty_awaited, self._stop.is_set()  # their values before the read
                found = self._pipes.read(memory)
                if found is None:
                    if stopping:
                        return
                    again_in = self._pause(empty_awaited)
                    if empty_awaited:
                        self._set_empty()
                    self._pipes.wait(again_in)
                    continue
                count, stream = found
                if count == 0:
                    return
                left -= count if stopping else 0
                self._handle(*self._buffer.commit(count, stream), stream)
        finally:
            self._pipes.close()
            self._pause(True)
            self._set_empty()

    def _set_empty(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._empty.set)


class Tail:
    """The last bytes of an output, and the lines in them."""

    def __init__(self, kept: int = RECENT_BYTES) -> None:
        self._kept = kept
        self._bytes = bytearray()  # up to twice as many as needed, so that they are seldom moved
        self._is_cut = False  # earlier bytes were dropped

    def add(self, data: bytearray, begin: int, end: int) -> None:
        first = max(begin, end - self._kept)
        self._bytes += memoryview(data)[first:end]
        self._is_cut = self._is_cut or first > begin
        if len(self._bytes) > 2 * self._kept:
            del self._bytes[: -self._kept]
            self._is_cut = True

    def recent_lines(self) -> tuple[str, ...]:
        """Return all lines. Bytes that are not UTF-8 are replaced."""
        return tuple(self._bytes.decode(errors="replace").splitlines())

    def lines(self, most: int = TAIL_LINES, size_limit: int = TAIL_BYTES) -> tuple[str, ...]:
        """Return the last lines within these limits. If the last line is too long, return its end."""
        lines = self._bytes[-size_limit:].decode(errors="replace").splitlines()
        if (self._is_cut or len(self._bytes) > size_limit) and len(lines) > 1:
            del lines[0]
        kept: list[str] = []
        free = size_limit
        for line in reversed(lines[-most:]):
            size = len(line.encode()) + 1
            if size > free:
                if not kept:
                    kept.append(line.encode()[-free:].decode(errors="ignore"))
                break
            kept.append(line)
            free -= size
        return tuple(reversed(kept))


class PassFinder:
    """Find the numbers of passes in an output, even if a number is divided between two reads.

    at: where in the data the mark of the last number is. Before the data, if the mark is in an earlier read
    """

    def __init__(self, mark: bytes) -> None:
        self.at = 0
        self._mark = mark
        self._before = b""  # the end of the earlier output, in which a mark may begin
        self._last: int | None = None

    def last_in(self, data: bytearray, begin: int, end: int) -> int | None:
        """Return the last pass number in these bytes. Return None if there is no number, or no new number."""
        if not self._mark:
            return None
        reach = len(self._mark) + _DIGITS
        number = self._search(data, begin, end)
        if number is None and self._before:
            seam = self._before + data[begin : min(end, begin + reach)]
            number = self._search(seam, 0, len(seam))
            if number is not None:
                self.at += begin - len(self._before)
        fresh = end - begin
        self._before = bytes(data[end - reach : end]) if fresh >= reach else (self._before + data[begin:end])[-reach:]
        if number is None or number == self._last:
            return None
        self._last = number
        return number

    def _search(self, data: bytes | bytearray, begin: int, end: int) -> int | None:
        """Return the number after the last mark. A number at the end is ignored, since more digits may follow."""
        while (at := data.rfind(self._mark, begin, end)) >= 0:
            first = last = at + len(self._mark)
            while last < min(end, first + _DIGITS) and data[last : last + 1].isdigit():
                last += 1
            if first < last < min(end, first + _DIGITS):
                self.at = at
                return int(data[first:last])
            end = at
        return None
