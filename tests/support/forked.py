"""Start `python -m launcher` in a fork of a process that has imported the launcher already.

Half of the processor time of a small job is the import of its launchers. Only the tests of pytest use this: benchmarks
start real commands, and so do tests with FLOOR (tests.support.floor).
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.paths import REPOSITORY

enabled = False  # tests/conftest.py enables it
_OF_RUN = ("launcher.cli.main", "launcher.run.launcher")
_OF_COMMANDS = (
    *_OF_RUN,
    "launcher.cli.parser",
    "launcher.job.commands",
    "launcher.live.show",
    "launcher.report.command",
)


class Forked:
    """A process that a fork server has started, with the methods of subprocess.Popen that the tests use."""

    def __init__(self, args: Sequence[str], report: socket.socket) -> None:
        self.args = args
        self.returncode: Any = None  # as in Popen
        self._report = report.makefile("rb", buffering=0)  # select must see what is not read yet
        self.pid = int(self._report.readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def communicate(self) -> tuple[None, None]:
        self.wait()
        return None, None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        """Wait for the exit code, at most this long."""
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(self._report.readline()))
            self._report.close()
        code: int | None = self.returncode
        return code


def launcher(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    namespace: int | None = None,
) -> Forked:
    """Start a launcher, which is the leader of a session."""
    return _start(_OF_RUN, arguments, env, [stdin, stdout, stderr, *([] if namespace is None else [namespace])])


def run(
    arguments: Sequence[object], *, env: Mapping[str, str] | None = None, text: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command of the launcher, as subprocess.run does with captured output."""
    words = [os.fspath(each) if isinstance(each, Path) else str(each) for each in arguments]
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(text.encode())
        stdin.seek(0)
        streams = [stdin.fileno(), stdout.fileno(), stderr.fileno()]
        process = _start(_OF_COMMANDS, words, os.environ if env is None else env, streams)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(["launcher", *words], code, _text(stdout), _text(stderr))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _start(preloaded: tuple[str, ...], arguments: Sequence[str], env: Mapping[str, str], streams: list[int]) -> Forked:
    ours, its = socket.socketpair()
    request = {"arguments": list(arguments), "environment": dict(env), "directory": os.getcwd()}
    with its:
        socket.send_fds(_server(preloaded), [json.dumps(request).encode()], [its.fileno(), *streams])
    with ours:
        return Forked(["launcher", *arguments], ours)


@functools.lru_cache
def _server(preloaded: tuple[str, ...]) -> socket.socket:
    """Start a fork server with these modules. It ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-m", "tests.support.fork_server", str(its.fileno()), *preloaded]
        server = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, cwd=REPOSITORY)
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours
