"""All processes of a member: which events are reported, and that no process is left at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from launcher.base.spawn import spawn, wait_for_exit
from launcher.model import Process
from launcher.processes.ports import is_listening
from launcher.processes.sinks import Limits
from launcher.processes.supervisor import Died, Event, PassDone, Serving, Supervisor
from tests.support.supervising import (
    alive,
    free_port,
    freezing_volume,
    needs_root,
    program,
    python,
    run,
    shell,
    silent_volume,
    until,
)

LONG = 60.0

SERVER = """
import os, socket, sys, time
tries = sys.argv[1]
open(tries, "a").write("x")
if os.path.getsize(tries) <= int(sys.argv[2]):
    print("core dumped", flush=True)
    os.abort()
sockets = []
for port in sys.argv[3:]:
    print("pserver started", flush=True)  # before it binds, as the real one does
    while not os.path.exists(f"{tries}.{port}"):
        time.sleep(0.005)
    sockets.append(socket.create_server(("127.0.0.1", int(port))))
time.sleep(1000)
"""


class Watched:
    """A supervisor with all its events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.tag = secrets.token_hex(8)
        self.nap = f"1000.{secrets.randbelow(10**9):09}"  # for `sleep`: no other process sleeps as long
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
        """A server that first crashes `crashes` times, then waits for each port until it may bind it."""
        for port in ports if may_bind else ():
            self.allow(port)
        arguments = (str(self.folder / "tries"), str(crashes), *map(str, ports))
        return python(SERVER, *arguments, role="pserver", log="server.log", ports=ports, tries=tries)

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


def test_each_death_is_reported_with_code_time_and_last_lines(tmp_path: Path) -> None:
    failing = shell("echo first; echo last >&2; exit 3")
    good = shell("exit 0", log="other.log")
    before = time.monotonic()

    async def test(w: Watched) -> None:
        w.supervisor.start(failing)
        w.supervisor.start(good)
        await until(lambda: len(w.deaths()) == 2)

    w = watch(tmp_path, test)
    deaths = {death.process.log: death for death in w.deaths()}
    assert deaths[good.log].code == 0
    assert deaths[failing.log].code == 3
    assert deaths[failing.log].tail == ("first", "last")
    assert before < deaths[failing.log].at < time.monotonic()
    assert w.log().endswith("mark ====\nfirst\nlast\n")


def test_a_program_that_cannot_start_is_reported_as_a_death_and_not_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(program("/no/such/program", role="pserver", ports=(1,), tries=3))
        await until(w.deaths)

    w = watch(tmp_path, test)
    assert [death.code for death in w.deaths()] == [127]
    assert "/no/such/program" in w.deaths()[0].start_error
    assert caplog.messages == []


def test_a_process_serves_once_it_listens_on_all_its_ports(tmp_path: Path) -> None:
    first, second = free_port(), free_port()

    async def test(w: Watched) -> None:
        server = w.server(ports=(first, second), may_bind=False)
        w.supervisor.start(server)
        await until(lambda: "started" in w.log("server.log"))
        w.allow(first)
        await until(lambda: w.log("server.log").count("started") == 2)
        assert w.serving() == []
        w.allow(second)
        await until(w.serving)
        assert w.serving() == [server]

    watch(tmp_path, test)


def test_a_socket_of_another_process_does_not_count() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            child = spawn(["/bin/sleep", "1000"], env={})
            assert not is_listening(child.pid, (port,))
            assert is_listening(os.getpid(), (port,))
            os.killpg(child.pid, signal.SIGKILL)
            await wait_for_exit(child)

    run(test())


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_grandchilds_socket_of_any_family_counts_though_it_has_its_own_session(family: socket.AddressFamily) -> None:
    script = (
        f"import os, socket, time; s = socket.create_server(('', 0), family={int(family)}); "
        "print(s.getsockname()[1], flush=True); os.setsid(); time.sleep(1000)"
    )

    async def test() -> None:
        reading, writing = os.pipe()
        child = spawn(["/bin/sh", "-c", f'"$0" -c "{script}" & wait', python("").argv[0]], env={}, stdout=writing)
        port = int(os.read(reading, 100))
        try:
            await until(lambda: is_listening(child.pid, (port,)))
        finally:
            for grandchild in psutil.Process(child.pid).children(recursive=True):
                grandchild.kill()
            child.kill()
            await wait_for_exit(child)
            os.close(reading)
            os.close(writing)

    run(test())


def test_a_process_that_crashes_before_it_serves_is_started_again_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    async def test(w: Watched) -> None:
        w.supervisor.start(w.server(crashes=2, ports=(port,)))
        await until(w.serving)
        assert w.deaths() == []
        assert len(caplog.messages) == 2
        assert caplog.messages[0] == (
            "the pserver ended with 134 before it served (try 1 of 3), it is started again; its last line: core dumped"
        )

    w = watch(tmp_path, test)
    assert w.log("server.log").count("====\n") == 1, "all tries are one attempt"
    assert w.log("server.log").count("core dumped") == 2


def test_after_the_third_crash_the_death_is_reported(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(w.server(crashes=9, ports=(free_port(),)))
        await until(w.deaths)

    w = watch(tmp_path, test)
    assert [death.code for death in w.deaths()] == [134]
    assert (tmp_path / "tries").read_text() == "xxx"
    assert w.serving() == []


@needs_root
def test_a_crashed_server_is_not_started_again_while_the_kernel_holds_one_of_its_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: Watched) -> None:
        with freezing_volume(tmp_path / "volume") as volume:
            volume.freeze()
            script = (
                f"(echo x > {volume.folder}/file) & until grep -q ') D ' /proc/$!/stat; do sleep 0.01; done; exit 3"
            )
            w.supervisor.start(shell(script, role="pserver", ports=(free_port(),), tries=3))
            await until(w.deaths)
            assert w.deaths()[0].code == 3

    watch(tmp_path, test)
    assert caplog.messages == []


def test_a_crash_after_it_served_is_reported_as_a_death(tmp_path: Path) -> None:
    port = free_port()

    async def test(w: Watched) -> None:
        w.supervisor.start(w.server(ports=(port,)))
        await until(w.serving)
        os.kill(pids(str(tmp_path / "tries"))[0], signal.SIGSEGV)
        await until(w.deaths)

    assert [death.code for death in watch(tmp_path, test).deaths()] == [139]


def test_a_requested_end_is_no_event(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"echo up; sleep {w.nap}"))
        await until(lambda: "up" in w.log())
        assert await w.supervisor.end(LONG) == []
        assert not pids("sleep", w.nap)

    assert watch(tmp_path, test).events == []


def test_a_requested_kill_is_no_event(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell("echo up; exec sleep 1000"))
        await until(lambda: "up" in w.log())
        w.supervisor.start(shell(f"exec sleep {w.nap}"))
        w.supervisor.kill()
        w.supervisor.start(shell("exit 3"))
        await until(w.deaths)  # if the earlier one had been started, it would run by now
        assert not pids("sleep", w.nap)

    assert [death.code for death in watch(tmp_path, test).deaths()] == [3]


def test_the_last_lines_are_reported_though_the_output_is_not_written(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        limits = Limits(memory=2 * 1024 * 1024)
        supervisor = Supervisor(w.events.append, w.tag, limits=limits)
        supervisor.start(shell("head -c 1500000 /dev/zero; echo; echo last line; exit 3"))
        await until(w.deaths)
        assert w.deaths()[0].tail[-1] == "last line"
        supervisor.set_log_folder(None, "")
        await supervisor.close(5)

    watch(tmp_path, test)


def test_only_the_given_role_is_ended(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"echo up; exec sleep {w.nap}", log="a.log"))
        w.supervisor.start(shell(f"echo up; exec sleep {w.nap}1", role="pserver", log="b.log"))
        await until(lambda: "up" in w.log("a.log") and "up" in w.log("b.log"))
        assert await w.supervisor.end(LONG, role="trainer") == []
        assert not pids("sleep", w.nap)
        assert pids("sleep", f"{w.nap}1")

    assert watch(tmp_path, test).events == []


def test_kill_ends_processes_that_ignore_sigterm_while_end_waits(tmp_path: Path) -> None:
    ignoring = "trap '' TERM; echo up; while :; do sleep 0.05; done"

    async def test(w: Watched) -> None:
        w.supervisor.start(shell(ignoring))
        await until(lambda: "up" in w.log())
        ending = asyncio.ensure_future(w.supervisor.end(LONG))
        await asyncio.sleep(0)
        w.supervisor.kill()
        assert await ending == []

    watch(tmp_path, test)


def test_an_end_right_after_the_start_leaves_no_process(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        for steps in reversed(range(4)):
            w.supervisor.start(shell(f"sleep {w.nap}", log=f"{steps}.log"))
            for _ in range(steps):
                await asyncio.sleep(0)
            assert await w.supervisor.end(LONG) == []
        w.supervisor.start(shell("exit 0"))
        await until(w.deaths)  # if one of the others had been started late, it would run by now
        assert not pids("sleep", w.nap)

    assert len(watch(tmp_path, test).events) == 1


@needs_root
def test_an_end_returns_in_time_while_the_program_is_loading(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        with silent_volume(tmp_path / "volume") as volume:
            w.supervisor.start(program(str(volume / "program")))
            await until(lambda: pids_forked_by_us())
            assert await w.supervisor.end(0.1) == []

    assert watch(tmp_path, test).events == []


def test_the_rest_of_a_group_ends_with_its_first_process(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"trap '' TERM; sh -c 'while :; do sleep 0.05; done' {w.nap} & exit 0"))
        await until(w.deaths)
        assert w.deaths()[0].code == 0
        await until(lambda: not pids(w.nap))

    watch(tmp_path, test)


def test_children_of_a_wrapper_have_the_whole_grace_to_end(tmp_path: Path) -> None:
    saving = "trap 'echo signalled' TERM; echo up; while [ ! -e may-end ]; do sleep 0.05; done; echo saved"

    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f'sh -c "{saving}" & wait', cwd=str(tmp_path)))
        await until(lambda: "up" in w.log())
        ending = asyncio.ensure_future(w.supervisor.end(LONG))
        await until(lambda: "signalled" in w.log())
        await asyncio.sleep(1.5)  # longer than the grace after a first process that ended by itself
        (tmp_path / "may-end").touch()
        assert await ending == []
        await until(lambda: "saved" in w.log())
        assert w.log().count("signalled") == 1

    watch(tmp_path, test)


def test_processes_with_a_session_of_their_own_are_killed_at_the_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"setsid sleep {w.nap}2 & env -i setsid sleep {w.nap}3 & echo up; wait"))
        await until(lambda: "up" in w.log() and pids("sleep", f"{w.nap}2") and pids("sleep", f"{w.nap}3"))
        other = spawn(["/bin/sleep", "1004"], env={})
        await w.supervisor.end(LONG)
        assert pids("sleep", f"{w.nap}2")
        await w.supervisor.close(5)
        assert not pids("sleep", f"{w.nap}2")
        assert not pids("sleep", f"{w.nap}3"), "it has no tag, but it is an orphan"
        assert alive(other.pid), "other children of the launcher are not killed"
        os.killpg(other.pid, signal.SIGKILL)
        await wait_for_exit(other)

    watch(tmp_path, test)
    assert "killed 2 processes that the children had left behind" in caplog.messages


def test_passes_are_reported(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        script = 'for i in 0 1 2; do echo "I1116 T.cpp:182]  Pass=$i Batch=60"; sleep 0.02; done'
        w.supervisor.start(shell(script, pass_mark=b"Pass="))
        await until(w.deaths)

    passes = [event.number for event in watch(tmp_path, test).events if isinstance(event, PassDone)]
    assert passes[-1] == 2
    assert passes == sorted(set(passes))


def test_output_before_the_folder_is_known_is_logged(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        early = Supervisor(w.events.append, w.tag)
        early.start(shell("echo early"))
        await until(w.deaths)
        early.set_log_folder(str(tmp_path / "node_1"), "mark")
        await early.close(5)
        assert (tmp_path / "node_1" / "train.log").read_text().endswith("early\n")

    watch(tmp_path, test)


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


def pids_forked_by_us() -> list[int]:
    """Return the children of this process."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists() and path.read_text().rpartition(")")[2].split()[1] == str(os.getpid())
    ]
