"""A process that cannot be started or watched dies with a reason that names the limit. No process is left unwatched."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.processes import ports, supervisor
from tests.support import floor
from tests.support.supervised import Watched, watch
from tests.support.supervising import free_port, shell, until

_DRIVER = """
import asyncio, json, os, secrets, sys, tempfile
from launcher.base import aio
from launcher.base.spawn import become_subreaper, watch_children
from launcher.model import Process
from launcher.processes.supervisor import Died, Serving, Supervisor

ports, what, spare = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])

class UsedUp:
    def __init__(self):
        self.held = []
        while True:
            try:
                self.held.append(self.take())
            except (OSError, RuntimeError):
                break
        for _ in range(spare):
            self.let_go(self.held.pop())

class Descriptors(UsedUp):
    take = staticmethod(lambda: os.dup(0))
    let_go = staticmethod(os.close)

class Processes(UsedUp):
    @staticmethod
    def take():
        if (pid := os.fork()) == 0:
            os.read(lasting, 1)
            os._exit(0)
        return pid

    @staticmethod
    def let_go(pid):
        os.kill(pid, 9)
        os.waitpid(pid, 0)

async def main():
    watch_children()
    aio.start_threads()
    events = []
    supervisor = Supervisor(events.append, secrets.token_hex(8))
    supervisor.set_log_folder(tempfile.mkdtemp(), "mark")
    used_up = {"descriptors": Descriptors, "processes": Processes}[what]()
    process = Process("pserver", tuple(sys.argv[4:]), dict(os.environ), "/", "server.log", ports=tuple(ports))
    supervisor.start(process)
    while not events:
        await asyncio.sleep(0.01)
    for held in used_up.held:
        used_up.let_go(held)
    await supervisor.close(5)
    first = events[0]
    died = [first.code, first.start_error] if isinstance(first, Died) else None
    print(json.dumps(died))
    try:
        print(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        print("no process is left")

lasting, end = os.pipe()
become_subreaper()
asyncio.run(main())
"""
_LISTENS = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(1000)"


def first_event(limit: str, what: str, spare: int, ports: tuple[int, ...], *argv: str) -> list[Any] | None:
    """Start a process while only `spare` descriptors or processes are left. Return its code and reason if it dies."""
    driver = [sys.executable, *floor.command(limit), "-c", _DRIVER, json.dumps(ports), what, str(spare), *argv]
    done = subprocess.run(driver, capture_output=True, text=True, timeout=60)
    floor.remove_groups()
    died, left = done.stdout.splitlines() or ("null", done.stderr)
    assert left == "no process is left", done.stderr
    event: list[Any] | None = json.loads(died)
    return event


@pytest.mark.parametrize("spare", [0, 1, 2, 3, 4, 5, 6, 7, 8, 12])
def test_a_process_runs_or_dies_with_the_limit_of_file_descriptors_as_the_reason(spare: int) -> None:
    died = first_event("nofile=64", "descriptors", spare, (), "/bin/sh", "-c", "exit 7")
    if died != [7, ""]:
        assert spare < 12
        assert died == [
            126,
            "the pserver cannot start: no file descriptor is left (RLIMIT_NOFILE = 64): raise the limit of open files",
        ]
    else:
        assert spare > 4


@pytest.mark.skipif(not floor.supports("pids=40"), reason="control groups cannot be made here")
@pytest.mark.parametrize("spare", [0, 1, 2, 3, 4])
def test_a_process_runs_or_dies_with_the_pid_limit_as_the_reason(spare: int) -> None:
    port = free_port()
    died = first_event("pids=40", "processes", spare, (port,), sys.executable, "-c", _LISTENS, str(port))
    full = "the pid limit of this pod is used up (pids.max = 40): raise the limit, or start fewer processes and threads"
    match spare:
        case 0 | 1:  # its log and its output need a thread each
            assert died == [126, f"the pserver cannot start: no thread can be started: {full}"]
        case 2:
            assert died == [126, f"the pserver cannot start: {full}"]
        case 3:  # without a further thread, nothing sees whether it listens
            why = "was ended, since the launcher cannot watch it: no thread can be started"
            assert died == [126, f"the pserver {why}: {full}"]
        case 4:
            assert died is None


def test_a_fault_while_a_process_is_watched_ends_the_process_and_is_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(supervisor, "wait_until_listening", fails)

    async def test(w: Watched) -> None:
        w.supervisor.start(shell("echo $$; sleep 1000", role="pserver", ports=(free_port(),)))
        await until(w.deaths)
        (death,) = w.deaths()
        assert death.code == 126
        assert death.start_error.startswith(
            "the pserver was ended, since the launcher cannot watch it: a fault of the launcher itself, please report"
        )
        assert "a bug" in death.start_error
        assert await w.supervisor.end(0) == []

    w = watch(tmp_path, test)
    assert len(w.deaths()) == 1


def test_a_look_without_a_descriptor_is_repeated_and_not_taken_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    looks: list[OSError] = []

    def without_descriptor(pid: int) -> set[int]:
        looks.append(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        raise looks[-1]

    async def test(w: Watched) -> None:
        server = w.server(ports=(port,))
        with monkeypatch.context() as shortage:
            shortage.setattr(ports, "process_tree", without_descriptor)
            w.supervisor.start(server)
            await until(lambda: len(looks) > 2)
            assert w.events == []
        await until(w.serving)

    watch(tmp_path, test)


def test_a_lasting_lack_of_descriptors_is_the_death_of_a_server_that_nothing_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_descriptor(_: int) -> set[int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(ports, "process_tree", without_descriptor)
    monkeypatch.setattr(ports, "_BLIND", 0.1)
    port = free_port()

    async def test(w: Watched) -> None:
        w.supervisor.start(w.server(ports=(port,)))
        await until(w.deaths)
        assert "the launcher cannot watch it: no file descriptor is left" in w.deaths()[0].start_error

    watch(tmp_path, test)
