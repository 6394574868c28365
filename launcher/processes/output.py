"""The output of one process: read at once, last lines and pass number kept, taken to its log and standard output."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import select
import threading
from collections.abc import Callable, Sequence

from launcher.base.aio import bounded, off_loop
from launcher.model import Process
from launcher.processes.buffer import Buffer
from launcher.processes.sinks import Limits, LogFile, Sink, StandardOutput

log = logging.getLogger(__name__)

TAIL_LINES = 20
TAIL_BYTES = 2048
WORDS_BYTES = 64 * 1024  # what tells why it died may stand above long stacks and a nested launcher's words

_PIPE_SIZE = 1024 * 1024  # what a pipe may hold without privileges
_DIGITS = 20  # more than any pass number has


class Output:
    """Outlives the process: a further try of it attaches again and goes on in the same log.

    `passed` is called on the loop with each new pass number, and `printed` from the threads
    of this output whenever something has come.
    """

    def __init__(
        self,
        process: Process,
        *,
        passed: Callable[[int], None],
        printed: Callable[[], None] = lambda: None,
        stdout: int = 1,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self._loop = asyncio.get_running_loop()
        self._passed = passed
        self._printed = printed
        self._backlog = Buffer(limits.memory, spare=_PIPE_SIZE)
        self._tail = Tail()
        self._marks = PassMarks(process.pass_mark)
        self._log: LogFile | None = LogFile(process.log, self._backlog, limits)
        self._sinks: list[Sink] = [self._log]
        if process.echo:
            self._sinks.append(StandardOutput(stdout, self._backlog, limits))
        self._writing = [off_loop(sink.run) for sink in self._sinks]
        self._reader: _Reader | None = None
        self._looking = self._loop.call_later(1, self._look)

    def place(self, folder: str | None, mark: str) -> None:
        """From now on the log is written in this folder, after a line with this mark. None: there is no log."""
        if self._log is None:
            return
        if folder is None:
            self._log.give_up()
        else:
            self._log.place(folder, mark)
        self._log = None

    def attach(self) -> int:
        """A new pipe that is read from now on. Gives its other end, for the process to write to."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # the user's share of pipe memory is used up: the usual size must do
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self._reader = _Reader(reading, self._backlog, self._heed)
        return writing

    async def settle(self, within: float) -> None:
        """The process is dead: wait until all that it wrote was read, so that the tail has its last words."""
        if self._reader is not None:
            await self._reader.read_all(within)

    async def detach(self, within: float) -> None:
        """Wait for the end of the pipe; somebody who still holds it open then is no longer heard."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close(within)

    def tail(self) -> tuple[str, ...]:
        """The last lines, at most 20 and 2 KiB."""
        return self._tail.lines()

    def words(self) -> tuple[str, ...]:
        """All lines that are still known, the last 64 KiB or more."""
        return self._tail.words()

    async def close(self, within: float) -> int:
        """Take everything to its places, within the bound. Gives, and says, how many bytes got lost."""
        self._backlog.finish()
        lost = self._lose([self._log]) if self._log is not None else 0  # there was never a folder for it
        await asyncio.wait(self._writing, timeout=within)
        self._looking.cancel()
        return lost + self._lose(self._sinks)

    def _lose(self, sinks: Sequence[Sink]) -> int:
        lost = 0
        for sink in sinks:
            if left := sink.waiting():
                log.info(f"{left} bytes of output were not written any more: {sink.name}")
            lost += left
            sink.give_up()
        return lost

    def _look(self) -> None:
        for sink in self._sinks:
            sink.look()
        self._looking = self._loop.call_later(1, self._look)

    def _heed(self, data: bytearray, begin: int, end: int) -> None:
        """Called in the reader's thread with what has just come."""
        self._tail.add(data, begin, end)
        self._printed()
        number = self._marks.last_in(data, begin, end)
        if number is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._passed, number)


class _Reader:
    """The thread that reads one pipe."""

    def __init__(self, pipe: int, backlog: Buffer, heed: Callable[[bytearray, int, int], None]) -> None:
        self._pipe = pipe
        self._backlog = backlog
        self._heed = heed
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._dead = threading.Event()  # the process: nobody waits for room any more
        self._stop = threading.Event()
        self._asked = False  # whether somebody waits for `_empty`
        self._empty = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe, False)
        self._done = off_loop(self._read)

    async def read_all(self, within: float) -> None:
        """Wait until the pipe is empty or at its end."""
        self._asked = True
        self._dead.set()
        self._rouse()
        with contextlib.suppress(asyncio.TimeoutError):
            await bounded(self._empty.wait(), within)

    async def close(self, within: float) -> None:
        """Wait for the end of the pipe within the bound, then stop reading."""
        self._dead.set()
        self._rouse()
        await asyncio.wait([self._done], timeout=within)
        self._stop.set()
        self._rouse()
        await self._done  # it waits for nothing but a wake
        os.close(self._wake)

    def _rouse(self) -> None:
        self._backlog.wake()
        os.eventfd_write(self._wake, 1)

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        left = _PIPE_SIZE  # to read once told to stop: who still holds the pipe may write without end
        try:
            while left > 0 and (room := self._backlog.room(self._stop, self._dead)) is not None:
                asked, stopping = self._asked, self._stop.is_set()  # before the read that answers it
                try:
                    count = os.readv(self._pipe, [room])
                except BlockingIOError:
                    if stopping:
                        return
                    if asked:
                        self._tell_empty()
                    poller.poll()
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                    continue
                if count == 0:
                    return
                left -= count if stopping else 0
                self._heed(*self._backlog.added(count))
        finally:
            os.close(self._pipe)
            self._tell_empty()

    def _tell_empty(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._empty.set)


class Tail:
    """The last bytes, and lines made of them when somebody asks."""

    def __init__(self) -> None:
        self._bytes = bytearray()  # up to twice as many as are to be known, so that they are seldom moved
        self._cut = False  # the beginning is missing

    def add(self, data: bytearray, begin: int, end: int) -> None:
        first = max(begin, end - WORDS_BYTES)
        self._bytes += memoryview(data)[first:end]
        self._cut = self._cut or first > begin
        if len(self._bytes) > 2 * WORDS_BYTES:
            del self._bytes[:-WORDS_BYTES]
            self._cut = True

    def words(self) -> tuple[str, ...]:
        """All lines, as text whatever the bytes are."""
        return tuple(self._bytes.decode(errors="replace").splitlines())

    def lines(self) -> tuple[str, ...]:
        """Whole lines where possible, as text whatever the bytes are, never more than the bounds."""
        lines = self._bytes[-TAIL_BYTES:].decode(errors="replace").splitlines()
        if (self._cut or len(self._bytes) > TAIL_BYTES) and len(lines) > 1:
            del lines[0]
        kept: list[str] = []
        room = TAIL_BYTES
        for line in reversed(lines[-TAIL_LINES:]):
            size = len(line.encode()) + 1
            if size > room:
                if not kept:
                    kept.append(line.encode()[-room:].decode(errors="ignore"))
                break
            kept.append(line)
            room -= size
        return tuple(reversed(kept))


class PassMarks:
    """Finds the number of the last pass in what a process writes, also where reads have cut it in two."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._before = b""  # the end of what was read before, as far as a mark may begin in it
        self._last: int | None = None

    def last_in(self, data: bytearray, begin: int, end: int) -> int | None:
        """The number of the last pass in these bytes, if it is a new one."""
        if not self._mark:
            return None
        reach = len(self._mark) + _DIGITS
        number = self._search(data, begin, end)
        if number is None and self._before:
            seam = self._before + data[begin : min(end, begin + reach)]
            number = self._search(seam, 0, len(seam))
        fresh = end - begin
        self._before = bytes(data[end - reach : end]) if fresh >= reach else (self._before + data[begin:end])[-reach:]
        if number is None or number == self._last:
            return None
        self._last = number
        return number

    def _search(self, data: bytes | bytearray, begin: int, end: int) -> int | None:
        """The last mark that a whole number follows: one that reaches the end may have more digits to come."""
        while (at := data.rfind(self._mark, begin, end)) >= 0:
            first = last = at + len(self._mark)
            while last < min(end, first + _DIGITS) and data[last : last + 1].isdigit():
                last += 1
            if first < last < min(end, first + _DIGITS):
                return int(data[first:last])
            end = at
        return None
