"""The answers to a probe, and a launcher that stays after its job is complete."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from pytest_mock import MockerFixture

from launcher.errors import Exit
from launcher.run import endpoint
from tests.support.jobs import IN_A_PASS, Job, until


def probe(workdir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", "alive"]
    return subprocess.run(command, env={"LAUNCHER_WORKDIR": str(workdir)}, capture_output=True, text=True, check=False)


def answers(workdir: Path) -> bool:
    return probe(workdir).returncode == 0


def test_a_launcher_answers_while_it_waits_and_while_it_trains(job: Job) -> None:
    job.hold(IN_A_PASS).start(1)
    until(lambda: answers(job.folder / "work-1"), what="an answer while the others are missing")
    job.start_in_a_pass(0, 2)
    assert answers(job.folder / "work-0")


def test_a_blocked_or_ended_launcher_does_not_answer(job: Job, tmp_path: Path) -> None:
    job.start(1)
    until(lambda: answers(job.folder / "work-1"))
    job.launchers[1].send_signal(signal.SIGSTOP)
    assert probe(job.folder / "work-1").returncode == Exit.TIMED_OUT
    job.launchers[1].kill()
    job.launchers[1].wait()
    gone = probe(job.folder / "work-1")
    assert gone.returncode == Exit.TIMED_OUT
    assert "no launcher answers" in gone.stderr
    assert "Traceback" not in gone.stderr


def test_a_probe_waits_for_a_launcher_that_has_not_started_yet(tmp_path: Path, mocker: MockerFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as launcher:

        def start(_: float) -> None:
            launcher.bind(str(tmp_path / ".paddle-launcher.sock"))
            launcher.listen()
            threading.Thread(target=lambda: launcher.accept()[0].sendall(b"alive\n")).start()

        waits = mocker.patch("launcher.run.endpoint.time.sleep", side_effect=start)
        endpoint.ask(str(tmp_path))
    waits.assert_called_once()


def test_with_launcher_stay_a_complete_job_idles_and_answers_until_sigterm(job: Job) -> None:
    job.environment |= {"LAUNCHER_STAY": "1"}
    job.start()
    until(lambda: all("waiting for SIGTERM (LAUNCHER_STAY)" in job.stderr(rank) for rank in range(3)), what="all stay")
    assert job.status(1)["phase"] == "complete"
    assert answers(job.folder / "work-1")
    assert job.find(1, "paddle_pserver_main") is None
    for launcher in job.launchers.values():
        assert launcher.poll() is None
        launcher.terminate()
    assert job.codes() == [0, 0, 0], job.stderr()


def test_with_launcher_stay_a_failed_job_ends(job: Job) -> None:
    job.environment["LAUNCHER_STAY"] = "1"
    assert job.start(0, 2).start(1, STANDIN_EXIT_AT="1:3").codes() == [69, 3, 69], job.stderr()
