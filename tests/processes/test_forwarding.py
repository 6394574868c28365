"""A signal of the launcher reaches the processes that handle it, and ends no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.processes.forwarding import forward
from tests.support.supervised import Watched, watch
from tests.support.supervising import alive, program, python, until

HANDLES = """
import os, signal, sys, time
# Not print: the signal may come while the program still prints that it is up, and Python refuses to print then.
signal.signal(signal.SIGUSR1, lambda number, _: os.write(1, f"{{sys.argv[1]}} got {{number}}\\n".encode()))
{more}
print(sys.argv[1], "is up", flush=True)
while True:
    time.sleep(0.01)
"""
FORKS = """
if os.fork() == 0:
    sys.argv[1] = "worker"
"""
WAITS = """
import signal, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
waiting = threading.Thread(target=lambda: print("got", signal.sigwait([signal.SIGUSR1]), flush=True))
waiting.start()
print("up", flush=True)
waiting.join()
time.sleep(1000)
"""


async def is_up(w: Watched, *words: str) -> None:
    await until(lambda: all(word in w.log() for word in words))


def test_a_trainer_gets_the_signal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(python(HANDLES.format(more=""), "trainer"))
        await is_up(w, "trainer is up")
        w.supervisor.forward(signal.SIGUSR1)
        await is_up(w, f"trainer got {int(signal.SIGUSR1)}")
        (subject,) = w.supervisor.subjects()
        assert caplog.messages == [f"SIGUSR1 is sent to process {subject.pid}"]

    watch(tmp_path, test)


def test_a_trainer_below_a_wrapper_gets_it_and_the_wrapper_lives(tmp_path: Path) -> None:
    script = HANDLES.format(more="")

    async def test(w: Watched) -> None:
        wrapper = 'echo wrapper $$; "$0" -c "$1" trainer; echo the wrapper ends'
        w.supervisor.start(program("/bin/sh", "-c", wrapper, sys.executable, script))
        await is_up(w, "trainer is up")
        w.supervisor.forward(signal.SIGUSR1)
        await is_up(w, "trainer got")
        assert w.deaths() == []

    watch(tmp_path, test)


def test_a_worker_that_a_trainer_has_forked_does_not_get_it(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(python(HANDLES.format(more=FORKS), "trainer"))
        await is_up(w, "trainer is up", "worker is up")
        for count in (1, 2):
            w.supervisor.forward(signal.SIGUSR1)
            await until(lambda count=count: w.log().count("trainer got") == count)  # type: ignore[misc]
        assert "worker got" not in w.log()

    watch(tmp_path, test)


def test_a_trainer_that_waits_for_the_signal_in_a_thread_gets_it(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(python(WAITS))
        await is_up(w, "up")
        w.supervisor.forward(signal.SIGUSR1)
        await is_up(w, "got")

    watch(tmp_path, test)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            signal.SIGQUIT,
            "SIGQUIT is not sent to any process: no trainer handles SIGQUIT, so SIGQUIT would end the trainers",
        ),
        (signal.SIGWINCH, None),  # a terminal sends it at each change of its size
    ],
)
def test_a_trainer_that_does_not_handle_the_signal_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: signal.Signals, said: str | None
) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(python(HANDLES.format(more=""), "trainer"))
        await is_up(w, "trainer is up")
        w.supervisor.forward(number)
        await until(lambda: caplog.messages or said is None)
        w.supervisor.forward(signal.SIGUSR1)
        await is_up(w, "trainer got")
        assert [message for message in caplog.messages if "USR1" not in message] == ([said] if said else [])
        assert w.deaths() == []

    watch(tmp_path, test)


def test_the_servers_get_it_only_if_there_is_no_trainer(tmp_path: Path) -> None:
    handles = HANDLES.format(more="")

    async def test(w: Watched) -> None:
        w.supervisor.start(python(handles, "server", role="pserver"))
        await is_up(w, "server is up")
        w.supervisor.forward(signal.SIGUSR1)
        await is_up(w, "server got")
        w.supervisor.start(python(handles, "trainer"))
        await is_up(w, "trainer is up")
        w.supervisor.forward(signal.SIGUSR1)
        await is_up(w, "trainer got")
        assert w.log().count("server got") == 1

    watch(tmp_path, test)


def test_processes_of_other_groups_are_left_alone() -> None:
    other = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
    try:
        assert forward(signal.SIGUSR1, []) == []
        assert forward(signal.SIGUSR1, [other.pid]) == []
        assert alive(other.pid)
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
