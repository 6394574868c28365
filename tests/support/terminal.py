"""A program in a terminal of a given size, and what it writes there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType


class Terminal:
    """Run a program in a terminal, as its controlling terminal. Leaving the context ends the program."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], size: tuple[int, int] = (24, 80)) -> None:
        self.output = ""
        self._argv, self._env, self._size = argv, env, size
        self._code: int | None = None

    def __enter__(self) -> Terminal:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))
            os.execvpe(self._argv[0], [*self._argv], dict(self._env))
        self.settings = termios.tcgetattr(self.fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, text: str, within: float = 60) -> str:
        """Return the output since the last call, as soon as it contains the text."""
        deadline = time.monotonic() + within
        while text not in self.output:
            assert self._read(deadline - time.monotonic()), f"not within {within:g} s: {text!r}: {self.output!r}"
        found, self.output = self.output, ""
        return found

    def code(self, within: float = 60) -> int:
        """Wait until the program ends, and return its exit code. `output` then has the rest of its output."""
        deadline = time.monotonic() + within
        while self._read(deadline - time.monotonic()):
            pass
        _, status = os.waitpid(self.pid, 0)
        self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _read(self, within: float) -> bool:
        """Read some output. Return False if there is none within the time, or if the program has ended."""
        ready, _, _ = select.select([self.fd], [], [], max(0.0, within))
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the program has ended
            return False
        self.output += data.decode(errors="replace")
        return bool(data)
