"""Helpers for tests of the supervisor: a supervisor that records its events, and a server that crashes on request."""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from launcher.model import Process
from launcher.processes.supervisor import Died, Event, Serving, Supervisor
from tests.support.supervising import alive, python, run

_SERVER = """
import os, socket, sys, time
tries = sys.argv[1]
open(tries, "a").write("x")
if os.path.getsize(tries) <= int(sys.argv[2]):
    print("core dumped", flush=True)
    os.abort()
sockets = []
for port in sys.argv[3:]:
    print("pserver started", flush=True)  # before it binds, like the real pserver
    while not os.path.exists(f"{tries}.{port}"):
        time.sleep(0.005)
    sockets.append(socket.create_server(("127.0.0.1", int(port))))
time.sleep(1000)
"""


class Watched:
    """A supervisor and all its events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.tag = secrets.token_hex(8)
        self.nap = f"1000.{secrets.randbelow(10**9):09}"  # an argument of `sleep` that no other process has
        self.supervisor = Supervisor(self.events.append, self.tag)
        self.supervisor.set_log_folder(str(folder), "mark")

    def log(self, name: str = "train.log") -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def deaths(self) -> list[Died]:
        return [event for event in self.events if isinstance(event, Died)]

    def serving(self) -> list[Process]:
        return [event.process for event in self.events if isinstance(event, Serving)]

    def server(self, crashes: int = 0, ports: tuple[int, ...] = (), tries: int = 3, may_bind: bool = True) -> Process:
        """Return a server that crashes `crashes` times, and then waits for each port until `allow` is called."""
        for port in ports if may_bind else ():
            self.allow(port)
        arguments = (str(self.folder / "tries"), str(crashes), *map(str, ports))
        return python(_SERVER, *arguments, role="pserver", log="server.log", ports=ports, tries=tries)

    def allow(self, port: int) -> None:
        (self.folder / f"tries.{port}").touch()


def watch(folder: Path, test: Callable[[Watched], Awaitable[None]]) -> Watched:
    """Run a test, then close the supervisor."""

    async def main() -> Watched:
        watched = Watched(folder)
        try:
            await test(watched)
        finally:
            await watched.supervisor.close(5)
        return watched

    return run(main())


def pids(*words: str) -> list[int]:
    """Return the live processes with all these words in their command line."""
    numbers = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if all(any(word == part or part.endswith("/" + word) for part in line) for word in words):
            numbers.append(int(folder.name))
    return [pid for pid in numbers if alive(pid) and pid != os.getpid()]
