"""Start `python -m launcher` in a fork of a process that has imported the launcher already.

Half of the processor time of a small job is the import of its launchers. Only the tests of pytest use this: benchmarks
start real commands, and so do tests with FLOOR (tests.support.floor).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.support.paths import REPOSITORY

_RUN, _COMMANDS = "FORK_SERVER_OF_RUN", "FORK_SERVER_OF_COMMANDS"  # variables with the place of a socket
_MODULES = {
    _RUN: ("launcher.cli.main", "launcher.run.launcher"),
    _COMMANDS: (
        "launcher.cli.main",
        "launcher.cli.parser",
        "launcher.job.commands",
        "launcher.live.show",
        "launcher.report.command",
    ),
}


class Forked:
    """A process that a fork server has started, with the methods of subprocess.Popen that the tests use.

    server: the connection to the server
    """

    def __init__(self, args: Sequence[str], server: socket.socket) -> None:
        self.args = args
        self.returncode: Any = None  # as in Popen
        self._server = server
        self.pid = self._number()

    def _number(self) -> int:
        told = self._server.recv(100)
        if not told:
            raise RuntimeError("the fork server has ended: does `python -c 'import launcher.run.launcher'` work?")
        return int(told)

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
            with suppress(ProcessLookupError):  # it ends now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        """Wait for the exit code, at most this long."""
        if self.returncode is None and select.select([self._server], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._number())
            self._server.close()
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
    return _start(_RUN, arguments, env, [stdin, stdout, stderr, *([] if namespace is None else [namespace])])


def run(
    arguments: Sequence[object], *, env: Mapping[str, str] | None = None, text: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command of the launcher, as subprocess.run does with captured output."""
    words = list(map(str, arguments))
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(text.encode())
        stdin.seek(0)
        streams = [stdin.fileno(), stdout.fileno(), stderr.fileno()]
        process = _start(_COMMANDS, words, os.environ if env is None else env, streams)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(["launcher", *words], code, _text(stdout), _text(stderr))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _start(server: str, arguments: Sequence[str], env: Mapping[str, str], streams: list[int]) -> Forked:
    request = {"arguments": list(arguments), "environment": dict(env), "directory": os.getcwd()}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(os.environ[server])
    socket.send_fds(connection, [json.dumps(request).encode()], streams)
    return Forked(["launcher", *arguments], connection)


def start_servers(folder: Path) -> None:
    """Start the servers for this process and its children. They end with this process."""
    for server, modules in _MODULES.items():
        os.environ[server] = str(folder / server)
        life, _ = os.pipe()  # the other end stays open until this process ends
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(os.environ[server])
            listener.listen(100)
            command = [sys.executable, "-m", "tests.support.fork_server", str(listener.fileno()), str(life), *modules]
            subprocess.run(
                command,
                pass_fds=[listener.fileno(), life],
                stdin=subprocess.DEVNULL,
                cwd=REPOSITORY,
                start_new_session=True,
                check=True,
            )
        os.close(life)


def are_there() -> bool:
    return _RUN in os.environ
