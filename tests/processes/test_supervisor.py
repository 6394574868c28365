"""The supervisor starts all processes of a member, and reports which of them serve, save a pass or die."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from launcher.base.spawn import spawn, wait_for_exit
from launcher.model import Numbers
from launcher.paddle.numbers import NumberFinder
from launcher.processes.ports import is_listening
from launcher.processes.sinks import Limits
from launcher.processes.supervisor import NumbersSeen, PassDone, Supervisor
from tests.support.supervised import Watched, pids, watch
from tests.support.supervising import free_port, freezing_volume, needs_root, program, python, run, shell, until


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


def test_a_process_serves_as_soon_as_it_listens_on_all_its_ports(tmp_path: Path) -> None:
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


def test_a_listening_socket_of_another_process_does_not_count() -> None:
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
def test_a_socket_of_a_grandchild_counts_for_any_address_family_and_session(family: socket.AddressFamily) -> None:
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


def test_a_process_that_crashes_before_it_serves_is_restarted_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    async def test(w: Watched) -> None:
        w.supervisor.start(w.server(crashes=2, ports=(port,)))
        await until(w.serving)
        assert w.deaths() == []
        assert len(caplog.messages) == 2
        assert caplog.messages[0] == (
            "the pserver exited with code 134 before it listened on its ports (try 1 of 3); starting it again; "
            "last line: core dumped"
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
def test_a_crashed_server_is_not_restarted_while_one_of_its_processes_is_blocked_in_the_kernel(
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


def test_passes_are_reported(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        script = 'for i in 0 1 2; do echo "I1116 T.cpp:182]  Pass=$i Batch=60"; sleep 0.02; done'
        w.supervisor.start(shell(script, pass_mark=b"Pass="))
        await until(w.deaths)

    passes = [event.number for event in watch(tmp_path, test).events if isinstance(event, PassDone)]
    assert passes[-1] == 2
    assert passes == sorted(set(passes))


def test_numbers_of_trainers_are_reported(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        supervisor = Supervisor(w.events.append, w.tag, find_numbers=NumberFinder)
        supervisor.set_log_folder(None, "")
        supervisor.start(shell("echo loss: 0.5", role="trainer"))
        supervisor.start(shell("echo loss: 0.25", role="pserver"))
        await until(lambda: len(w.deaths()) == 2)
        await supervisor.close(5)

    watched = watch(tmp_path, test)
    seen = [event.numbers for event in watched.events if isinstance(event, NumbersSeen)]
    assert seen == [Numbers(loss=0.5)]
    of_trainer = next(death for death in watched.deaths() if death.process.role == "trainer")
    assert watched.events.index(NumbersSeen(seen[0])) < watched.events.index(of_trainer)


def test_output_before_the_folder_is_known_is_logged(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        early = Supervisor(w.events.append, w.tag)
        early.start(shell("echo early"))
        await until(w.deaths)
        early.set_log_folder(str(tmp_path / "node_1"), "mark")
        await early.close(5)
        assert (tmp_path / "node_1" / "train.log").read_text().endswith("early\n")

    watch(tmp_path, test)
