"""The view of a job that really runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.jobs import Job, until


class Watched:
    """`paddle-launcher status --watch` of a job, and the lines that it has written so far, without their times."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "launcher", "status", "--watch", str(job.output.parent)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, *words: str) -> None:
        until(lambda: any(all(word in line for word in words) for line in self.lines), what=f"{words}: {self.lines}")

    def end(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and the last line."""
        code = self.process.wait(60)
        self._reader.join(10)
        return code, self.lines[-1]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


@contextmanager
def watched(job: Job) -> Iterator[Watched]:
    watch = Watched(job)
    try:
        yield watch
    finally:
        watch.process.kill()
        watch.process.wait()


def test_a_job_is_watched_from_before_its_start_to_its_end(job: Job) -> None:
    with watched(job) as watch:
        watch.wait_for("no member has joined yet")
        job.start_in_a_pass()
        watch.wait_for("rank 0-2: training")
        watch.wait_for("pass 1/2")
        job.release()
        assert watch.end() == (0, "quick-start: the job is complete")
        assert any("pass 1 is done" in line for line in watch.lines)
    assert job.codes() == [0, 0, 0]


def test_a_job_whose_trainer_is_killed_ends_the_view_with_the_code_and_the_pod(job: Job) -> None:
    job.start_in_a_pass()
    with watched(job) as watch:
        watch.wait_for("rank 0-2: training")
        job.kill(1, "paddle_trainer")
        code, last = watch.end()
        assert code == 137
        assert last.startswith("quick-start: exit code 137: rank 1 (pod-1): ")
        watch.wait_for("rank 1 (pod-1): failed: ")
        watch.wait_for("rank 0, 2: failed: because of rank 1")


def test_a_restart_is_shown_as_a_new_generation(job: Job) -> None:
    job.start_in_a_pass(LAUNCHER_MAX_RESTARTS="1")
    with watched(job) as watch:
        watch.wait_for("rank 0-2: training")
        job.kill(2, "paddle_trainer")
        watch.wait_for("generation 0 has ended: rank 2 (pod-2): ")
        watch.wait_for("generation 1 begins")
        job.release()
        assert watch.end()[0] == 0
