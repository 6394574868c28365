"""The destinations of a child's output: a log file on the volume, and the standard streams of the launcher.

Each sink has its own thread.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launcher.base.entries import WrongKind
from launcher.base.files import Folder
from launcher.base.log import write_output
from launcher.processes.buffer import CHUNK, Buffer

log = logging.getLogger(__name__)

_STREAMS = ("standard output", "standard error")
_FORMATTED = 16 * 1024  # bytes that are formatted at a time
_LONGEST_LINE = 64 * 1024
_TURN = 1.0  # seconds
_PIPE_CHUNK = (
    64 * 1024
)  # a blocking write returns only after all bytes were taken, so small writes show progress earlier


@dataclass(frozen=True)
class Limits:
    """The limits of the output path."""

    memory: int = 16 * 1024 * 1024  # bytes of output that may wait in memory, per child
    stall: float = 10.0  # seconds without progress until a stall is logged
    retry: float = 1.0  # seconds between attempts to write after an error
    repeat: float = 30.0  # seconds between messages about the same problem


class Sink:
    """Write a child's output to one destination, in order and unchanged. After an error, retry until `give_up`.

    `run` is called in the sink's thread, all other methods on the event loop.
    """

    max_write = CHUNK

    def __init__(self, name: str, buffer: Buffer, limits: Limits) -> None:
        self.name = name
        self._buffer = buffer
        self._cursor = buffer.cursor()
        self._limits = limits
        self._in_write_since: float | None = None
        self._stall_logged_at = 0.0  # 0: the present stall has not been logged yet
        self._error_logged_at = 0.0
        self._is_failing = False

    def run(self) -> None:
        """Write until there is no more output or the sink is given up."""
        while (data := self._next()) is not None:
            with data:
                count = self._try_to_write(data)
            self._buffer.advance(self._cursor, count)
        self._close()

    def pending(self) -> int:
        """Return how many bytes have not been written yet."""
        return self._buffer.pending(self._cursor)

    def give_up(self) -> None:
        """Stop writing, and drop all pending output."""
        self._buffer.close(self._cursor)

    def check_stall(self) -> None:
        """Log if a write has not returned for 10 s.

        The caller must call this about every second, in another thread: the sink's thread may be blocked.
        """
        since, now = self._in_write_since, time.monotonic()
        if since is None or now - since < self._limits.stall:
            if self._stall_logged_at:
                self._stall_logged_at = 0.0
                log.info(f"writes to {self.name} succeed again, after a stall")
        elif not self._stall_logged_at or now - self._stall_logged_at >= self._limits.repeat:
            self._stall_logged_at = now
            log.info(f"a write to {self.name} has been blocked for {now - since:.0f} s; {self.pending()} bytes wait")

    def _try_to_write(self, data: memoryview) -> int:
        """Write once, and pause after an error. Return how many bytes were written."""
        if self._in_write_since is None:
            self._in_write_since = time.monotonic()
        try:
            count = self._write(data)
        except BlockingIOError:
            self._wait_until_writable()
            return 0
        except OSError as error:
            self._in_write_since = None
            self._handle_error(error)
            return 0
        self._in_write_since = None
        if self._is_failing and count:
            self._is_failing, self._error_logged_at = False, 0.0
            log.info(f"writes to {self.name} succeed again, after an error")
        return count

    def _handle_error(self, error: OSError) -> None:
        self._is_failing = True
        now = time.monotonic()
        if not self._error_logged_at or now - self._error_logged_at >= self._limits.repeat:
            self._error_logged_at = now
            reason = f"{error.path} {error.what}" if isinstance(error, WrongKind) else os.strerror(error.errno or 0)
            log.info(f"cannot write to {self.name}: {reason}; {self.pending()} bytes wait; retrying every second")
        self._close()
        self._buffer.pause(self._cursor, self._limits.retry)

    def _next(self) -> memoryview | None:
        """Wait for the next bytes. Return None at the end, or if the sink is given up."""
        return self._buffer.next_bytes(self._cursor, self.max_write)

    def _wait_until_writable(self) -> None:
        """Wait for at most a second. Another process may have made the descriptor non-blocking."""
        poller = select.poll()
        poller.register(self._descriptor(), select.POLLOUT)
        poller.poll(1000)

    def _write(self, data: memoryview) -> int:
        return os.write(self._descriptor(), data)

    def _descriptor(self) -> int:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class LogFile(Sink):
    """A log file on the volume, opened for appending once its folder is known. Until then the output waits."""

    def __init__(self, file: str, buffer: Buffer, limits: Limits) -> None:
        super().__init__(file, buffer, limits)
        self._file = file
        self._fd: int | None = None
        self._opened_before = False
        self._header = b""
        self._folder_known = threading.Event()

    def set_folder(self, folder: str, mark: str) -> None:
        """Write to this folder. A line with `mark` separates this attempt from earlier attempts in the same file."""
        self.name = os.path.join(folder, self._file)
        self._header = f"==== {time.strftime('%Y-%m-%d %H:%M:%S')} {mark} ====\n".encode()
        self._folder_known.set()

    def give_up(self) -> None:
        super().give_up()
        self._folder_known.set()

    def run(self) -> None:
        self._folder_known.wait()
        while self._header and not self._cursor.closed:
            self._try_to_write(memoryview(b""))
        super().run()

    def _write(self, data: memoryview) -> int:
        fd = self._descriptor()
        if self._header:
            self._header = self._header[os.write(fd, self._header) :]
            return 0
        return os.write(fd, data)

    def _descriptor(self) -> int:
        if self._fd is None:
            output, folder = os.path.split(os.path.dirname(self.name))
            self._fd, replaced = Folder(output, folder).open_log(self._file)
            if replaced:
                log.warning(replaced)
            if not self._opened_before:
                self._opened_before = True
                size = os.fstat(self._fd).st_size
                if size and os.pread(self._fd, 1, size - 1) != b"\n":
                    self._header = b"\n" + self._header  # the log of an earlier attempt ends in the middle of a line
        return self._fd

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                os.close(fd)
            except OSError:
                pass  # the descriptor is closed even then


class StandardStreams(Sink):
    """The launcher's standard output and standard error. Each gets the bytes that the process has written to its own.

    If the reader of one of them has closed it, its bytes are dropped. If the reader of both has, the sink stops.

    fds: standard output and standard error; only standard output if all bytes go there
    format_line: takes a line without its end, and returns the line to write. None: lines are written as they are.
    turns: one lock per stream, for all sinks that write there. One sink holds it until all lines that it has formatted
        are written: a pipe that is full takes a part of a line, and the next part could be another sink's
    """

    max_write = _PIPE_CHUNK

    def __init__(
        self,
        fds: Sequence[int],
        buffer: Buffer,
        limits: Limits,
        format_line: Callable[[bytes], bytes] | None = None,
        turns: Sequence[threading.Lock] = (),
    ) -> None:
        super().__init__(_STREAMS[0], buffer, limits)
        self._fds = fds
        self._stream = 0  # of the bytes that are written now
        self._format_line = format_line
        self._begun = [b"" for _ in fds]  # lines whose end was not read yet
        self._formatted = b""  # what is not written yet
        self._source_size = 0  # of the bytes from which it was made
        self._turns = turns or [threading.Lock() for _ in fds]
        self._turn: threading.Lock | None = None  # held while formatted lines are being written
        self._closed: set[int] = set()

    def run(self) -> None:
        try:
            super().run()
            for stream, begun in enumerate(self._begun):
                if begun and self._format_line:
                    self._set_stream(stream)
                    self._formatted = self._format_line(begun)
                    while self._formatted and not self._cursor.closed:
                        self._try_to_write(memoryview(b""))
        finally:
            self._end_turn()

    def _next(self) -> memoryview | None:
        part = self._buffer.next_part(self._cursor, self.max_write)
        if part is None:
            return None
        data, stream = part
        self._set_stream(stream)
        return data

    def _set_stream(self, stream: int) -> None:
        self._stream = stream
        self.name = _STREAMS[stream]

    def _write(self, data: memoryview) -> int:
        if self._stream in self._closed:
            self._formatted = b""
            self._end_turn()
            return len(data)
        if self._format_line is None:
            return write_output(self._descriptor(), data)
        if not self._formatted:
            self._source_size = len(data[:_FORMATTED])
            self._format(data[:_FORMATTED])
        if self._formatted:
            self._write_formatted()
        return 0 if self._formatted else self._source_size

    def _write_formatted(self) -> None:
        """Write some of the formatted lines, once it is this sink's turn."""
        if self._turn is None and self._turns[self._stream].acquire(timeout=_TURN):
            self._turn = self._turns[self._stream]
        if self._turn is not None:
            self._formatted = self._formatted[write_output(self._descriptor(), self._formatted) :]
            if not self._formatted:
                self._end_turn()

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.release()
            self._turn = None

    def _format(self, data: memoryview) -> None:
        """Format all lines that end in the data. A line that is too long is divided, between two characters."""
        assert self._format_line is not None
        *lines, begun = (self._begun[self._stream] + data).split(b"\n")
        if len(begun) > _LONGEST_LINE:
            end = _whole_characters(begun)
            lines.append(begun[:end])
            begun = begun[end:]
        self._begun[self._stream] = begun
        self._formatted = b"".join(map(self._format_line, lines))

    def _handle_error(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.EBADF):
            super()._handle_error(error)
            return
        log.info(f"{self.name} is closed: lines go to the log file only")
        self._closed.add(self._stream)
        if len(self._closed) == len(self._fds):
            self.give_up()

    def _descriptor(self) -> int:
        return self._fds[self._stream]

    def _close(self) -> None:
        pass  # the launcher still uses the descriptors


def _whole_characters(text: bytes) -> int:
    """Return the length of the text without a character of UTF-8 at its end that may be cut."""
    for back in range(1, min(4, len(text)) + 1):
        if text[-back] & 0xC0 != 0x80:  # not within a character
            return len(text) - back if text[-back] >= 0xC0 else len(text)
    return len(text)
