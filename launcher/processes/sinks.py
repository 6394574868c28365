"""Where output goes: a log file on the volume, and standard output. Each has a thread, so none holds up another."""

from __future__ import annotations

import errno
import logging
import os
import select
import threading
import time
from dataclasses import dataclass

from launcher.processes.buffer import CHUNK, Buffer

log = logging.getLogger(__name__)

_PIPEFUL = 64 * 1024  # a blocking write is over only when all of it is taken: small ones show progress


@dataclass(frozen=True)
class Limits:
    """The bounds of the log path, in bytes and seconds."""

    memory: int = 16 * 1024 * 1024  # of output that waits in memory for one child
    stall: float = 10.0  # without progress, until a place is named
    retry: float = 1.0  # between attempts to write after an error
    repeat: float = 30.0  # between words about the same trouble


class Sink:
    """Takes a child's output to one place, in order and unchanged, and tries again for as long as it must.

    `run` is the work of its thread; everything else may be called from the loop.
    """

    at_most = CHUNK

    def __init__(self, name: str, backlog: Buffer, limits: Limits) -> None:
        self.name = name
        self._backlog = backlog
        self._cursor = backlog.cursor()
        self._limits = limits
        self._in_write_since: float | None = None
        self._stall_named = 0.0  # when the present stall was named last; 0: not
        self._error_named = 0.0
        self._failing = False

    def run(self) -> None:
        """Take bytes to their place until there are no more or the place is given up."""
        while (piece := self._backlog.take(self._cursor, self.at_most)) is not None:
            with piece:
                taken = self._attempt(piece)
            self._backlog.took(self._cursor, taken)
        self._close()

    def waiting(self) -> int:
        """Bytes that have not been taken to their place."""
        return self._backlog.waiting(self._cursor)

    def give_up(self) -> None:
        """Take no more; what waits is let go."""
        self._backlog.leave(self._cursor)

    def look(self) -> None:
        """Name a write that does not come back. Called about every second on the loop, for the thread is in it."""
        since, now = self._in_write_since, time.monotonic()
        if since is None or now - since < self._limits.stall:
            if self._stall_named:
                self._stall_named = 0.0
                log.info(f"{self.name} takes writes again")
        elif not self._stall_named or now - self._stall_named >= self._limits.repeat:
            self._stall_named = now
            log.info(f"{self.name} has not taken a write for {now - since:.0f} s; {self.waiting()} bytes wait")

    def _attempt(self, piece: memoryview) -> int:
        """Write once, and rest if that fails. Gives how many bytes of the piece were taken."""
        if self._in_write_since is None:
            self._in_write_since = time.monotonic()
        try:
            taken = self._write(piece)
        except BlockingIOError:
            self._wait_until_writable()
            return 0
        except OSError as error:
            self._in_write_since = None
            self._failed(error)
            return 0
        self._in_write_since = None
        if self._failing and taken:
            self._failing, self._error_named = False, 0.0
            log.info(f"{self.name} is written again")
        return taken

    def _failed(self, error: OSError) -> None:
        self._failing = True
        now = time.monotonic()
        if not self._error_named or now - self._error_named >= self._limits.repeat:
            self._error_named = now
            reason = os.strerror(error.errno or 0)
            log.info(f"{self.name} cannot be written: {reason}; {self.waiting()} bytes wait, it is tried every second")
        self._close()
        self._backlog.rest(self._cursor, self._limits.retry)

    def _wait_until_writable(self) -> None:
        """Somebody made the descriptor non-blocking: wait as if it were not, but look up every second."""
        poller = select.poll()
        poller.register(self._descriptor(), select.POLLOUT)
        poller.poll(1000)

    def _write(self, piece: memoryview) -> int:
        return os.write(self._descriptor(), piece)

    def _descriptor(self) -> int:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class LogFile(Sink):
    """A file on the volume, appended to. It is opened once its folder is known; until then its bytes wait."""

    def __init__(self, file: str, backlog: Buffer, limits: Limits) -> None:
        super().__init__(file, backlog, limits)
        self._file = file
        self._fd: int | None = None
        self._opened_before = False
        self._preface = b""
        self._placed = threading.Event()

    def place(self, folder: str, mark: str) -> None:
        """The folder is known; `mark` is the line that parts this attempt from those before it."""
        self.name = os.path.join(folder, self._file)
        self._preface = f"==== {time.strftime('%Y-%m-%d %H:%M:%S')} {mark} ====\n".encode()
        self._placed.set()

    def give_up(self) -> None:
        super().give_up()
        self._placed.set()

    def run(self) -> None:
        self._placed.wait()
        while self._preface and not self._cursor.left:
            self._attempt(memoryview(b""))
        super().run()

    def _write(self, piece: memoryview) -> int:
        fd = self._descriptor()
        if self._preface:
            self._preface = self._preface[os.write(fd, self._preface) :]
            return 0
        return os.write(fd, piece)

    def _descriptor(self) -> int:
        if self._fd is None:
            _make_folders(os.path.dirname(self.name))
            self._fd = os.open(self.name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            _open_to_all(self._fd, 0o666)
            if not self._opened_before:
                self._opened_before = True
                size = os.fstat(self._fd).st_size
                if size and os.pread(self._fd, 1, size - 1) != b"\n":
                    self._preface = b"\n" + self._preface  # the attempt before was cut off within a line
        return self._fd

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                os.close(fd)
            except OSError:
                pass  # the descriptor is free all the same


class StandardOutput(Sink):
    """The launcher's standard output: dropped once nobody reads it any more."""

    at_most = _PIPEFUL

    def __init__(self, fd: int, backlog: Buffer, limits: Limits) -> None:
        super().__init__("standard output", backlog, limits)
        self._fd = fd

    def _failed(self, error: OSError) -> None:
        if error.errno in (errno.EPIPE, errno.EBADF):
            log.info("standard output is closed: lines go to the log file only")
            self.give_up()
        else:
            super()._failed(error)

    def _descriptor(self) -> int:
        return self._fd

    def _close(self) -> None:
        pass  # it is the launcher's


def _make_folders(path: str) -> None:
    """The folder and what is missing above it, such that the next attempt, as another user, can write there too."""
    if os.path.isdir(path):
        return
    _make_folders(os.path.dirname(path))
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    _open_to_all(path, 0o777)


def _open_to_all(path: str | int, mode: int) -> None:
    """Whatever the umask says. Where it is somebody else's or the volume knows no modes, it stays as it is."""
    try:
        os.chmod(path, mode)
    except OSError:
        pass
