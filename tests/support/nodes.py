"""Several nodes on one machine, each with its own address and device: one network namespace for the test's processes.

    with Nodes(3) as nodes:
        server = nodes.popen(["paddle", "pserver", f"--nics={nodes.devices[0]}"])

Node i, counted from 0, has the device `lo:<i+1>` with the address 127.0.1.<i+1>. 127.0.0.1 and ::1 work, too. At the
end, all processes in the namespace are killed, in all sessions and process groups.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.support import forked

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_HOLDER = """
import sys
from launcher.run import netns
netns.enter(int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


class Nodes:
    """A namespace with `count` nodes, and the processes in it."""

    def __init__(self, count: int) -> None:
        self.devices = [f"lo:{number}" for number in range(1, count + 1)]
        self.addresses = [f"127.0.1.{number}" for number in range(1, count + 1)]
        self._started: list[subprocess.Popen[Any] | forked.Forked] = []

    def __enter__(self) -> Nodes:
        self._holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(len(self.devices))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self._holder.kill()
            self._holder.communicate()
            raise RuntimeError("no network namespace of our own: user namespaces may be forbidden here")
        self._namespace = os.readlink(f"/proc/{self._holder.pid}/ns/net")
        return self

    def popen(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        """Start a process inside, in a new session. It has the same pid inside and outside."""
        holder = self.holder_of(options.get("env") or {})
        user = [] if _is_of_same_user(holder) else ["--user", "--preserve-credentials"]
        enter = ["nsenter", f"--target={holder}", "--net", *user, "--"]
        process = subprocess.Popen([*enter, *argv], start_new_session=True, **options)
        self._started.append(process)
        return process

    def can_fork(self, env: Mapping[str, str]) -> bool:
        """Return whether `fork` can start a launcher with these variables."""
        return forked.are_there() and _is_of_same_user(self.holder_of(env))

    def fork(self, arguments: Sequence[str], *, env: Mapping[str, str], stdout: int, stderr: int) -> forked.Forked:
        """Start a launcher inside, in a new session, by `forked`."""
        with open(f"/proc/{self.holder_of(env)}/ns/net") as namespace, open(os.devnull) as stdin:
            process = forked.launcher(
                arguments, env=env, stdin=stdin.fileno(), stdout=stdout, stderr=stderr, namespace=namespace.fileno()
            )
        self._started.append(process)
        return process

    def holder_of(self, env: Mapping[str, str]) -> int:
        """Return the process that holds the namespace for a process with these variables."""
        return self._holder.pid

    def run(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a process inside, and wait until it ends."""
        process = self.popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function of this process in a thread that is inside: what it listens on is inside, too. Needs root."""
        results: list[T] = []

        def work() -> None:
            with open(f"/proc/{self._holder.pid}/ns/net") as namespace:
                if CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) == 0:
                    results.append(function())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return results[0]

    def inside(self) -> list[int]:
        """Return the live processes in the namespace, without zombies and without the holder of the namespace."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if pid != self._holder.pid and self._is_inside(pid)]

    def end(self) -> None:
        """Kill all processes in the namespace except its holder, and wait until they have ended."""
        deadline = time.monotonic() + 10
        while pids := self.inside():
            if time.monotonic() > deadline:
                raise RuntimeError(f"these processes do not end: {pids}")
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.005)
        for process in self._started:
            process.communicate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._holder.communicate()

    def _is_inside(self, pid: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/ns/net") == self._namespace
        except OSError:
            return False  # the process has ended or is a zombie, which has no namespaces


def listening(process: subprocess.Popen[Any]) -> set[tuple[str, int]]:
    """Return the listening addresses and ports in the process's network namespace. Empty until it has entered it."""
    places: set[tuple[str, int]] = set()
    try:
        if os.readlink(f"/proc/{process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return places
        lines = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return places
    for fields in (line.split() for line in lines):
        address, port = fields[1].split(":")
        if fields[3] == "0A":
            places.add((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return places


def _is_of_same_user(holder: int) -> bool:
    """Whether this process can enter the holder's network namespace as it is, without a user namespace."""
    return os.readlink("/proc/self/ns/user") == os.readlink(f"/proc/{holder}/ns/user")
