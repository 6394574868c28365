"""A whole job for tests: a volume with shards, and N launchers that run the stand-in, each with its own address."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from tests.support import floor, forked
from tests.support.nodes import Nodes
from tests.support.paths import MAKE_DATA, STANDIN

PROGRAM = ("-m", "launcher")
LauncherProcess = subprocess.Popen[bytes] | forked.Forked
JOB = "quick-start"
IN_A_PASS = "pass-0-batch-1"  # a gate of the stand-in: each trainer waits here after it has logged one batch
FLAGS = ("--config=trainer_config.lr.py", "--num_passes=2", "--log_period=1")


def until(condition: Callable[[], Any], within: float = 60, what: str = "") -> Any:
    """Wait until the condition returns a true value, and return the value. Fail the test if it never does."""
    deadline = time.monotonic() + within
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
        time.sleep(0.02)


def make_volume(folder: Path, nodes: int = 3, lines: int = 300) -> Path:
    """Make a volume with the shards and the configuration of one job, with the files that the data job makes."""
    source, volume = folder / "source", folder / "volume"
    subprocess.run([sys.executable, MAKE_DATA, source, f"--examples={lines}", "--seed=1"], check=True, stdout=-3)
    sharding = [
        "shard",
        "--data",
        source / "data",
        "--config",
        source / "quick_start",
        "--out",
        volume / JOB,
        "--anywhere",
    ]
    subprocess.run(
        [sys.executable, "-m", "launcher", *map(str, sharding), "--count", str(nodes)], check=True, stderr=-3, stdout=-3
    )
    return volume


class Job:
    """The launchers of one job. `start` can set more variables. FLOOR limits their resources (tests.support.floor)."""

    def __init__(self, nodes: Nodes, volume: Path | None, folder: Path, size: int = 3, **environment: str) -> None:
        self.nodes = nodes
        self.size = size
        self.volume = volume
        self.folder = folder
        self.environment = environment
        self.program: tuple[str, ...] = (*floor.from_environment(), *PROGRAM)
        self.prefix: tuple[str, ...] = ()  # a command that runs another command, such as setpriv
        self.launchers: dict[int, LauncherProcess] = {}
        self.output = volume / JOB / "output" if volume else folder
        self.gates = folder / "gates"

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables of one member, and make its work directory."""
        workdir = self.folder / f"work-{rank}"
        workdir.mkdir(exist_ok=True)
        (self.folder / f"termination-{rank}").touch()
        told = {
            "PATH": f"{STANDIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "CONF_PADDLE_NIC": self.nodes.devices[rank],
            "CONF_PADDLE_GRADIENT_NUM": str(self.size),
            "POD_NAME": f"pod-{rank}",
            "POD_IP": self.nodes.addresses[rank],
            "LAUNCHER_PEERS": ",".join(self.nodes.addresses[: self.size]),
            "LAUNCHER_JOB_ID": "job-1",
            "LAUNCHER_WORKDIR": str(workdir),
            "LAUNCHER_TERMINATION_LOG": str(self.folder / f"termination-{rank}"),
            "LAUNCHER_HTML_REPORT": "0",
            "STANDIN_ON_PEER_DEATH": "hang",
            "STANDIN_GATES": str(self.gates),
            **(
                {"JOB_NAME": JOB, "JOB_PATH": str(self.volume), "TRAIN_CONFIG_DIR": "quick_start"}
                if self.volume
                else {}
            ),
        }
        return told | self.environment

    def start(self, *ranks: int, flags: tuple[str, ...] = FLAGS, **more: str) -> Job:
        """Start these members, or all members if none is named."""
        for rank in ranks or range(self.size):
            out, errors = (self.folder / f"{name}-{rank}" for name in ("stdout", "stderr"))
            with out.open("ab") as stdout, errors.open("ab") as stderr:
                self.launchers[rank] = self._launch(["run", *flags], self.variables(rank) | more, stdout, stderr)
        return self

    def _launch(
        self, arguments: Sequence[str], env: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
    ) -> LauncherProcess:
        if (*self.prefix, *self.program) == PROGRAM and self.nodes.can_fork(env):
            return self.nodes.fork(arguments, env=env, stdout=stdout.fileno(), stderr=stderr.fileno())
        command = [*self.prefix, sys.executable, *self.program, *arguments]
        return self.nodes.popen(command, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def start_in_a_pass(self, *ranks: int, flags: tuple[str, ...] = FLAGS, **more: str) -> Job:
        """Start these members, or all members, and hold the training within its first pass."""
        return self.hold(IN_A_PASS).start(*ranks, flags=flags, **more).until_training()

    def hold(self, *gates: str) -> Job:
        """Close these gates of the stand-in (tests/standin/README.md): its trainers wait there until `release`."""
        self.gates.mkdir(exist_ok=True)
        for gate in gates:
            (self.gates / gate).touch()
        return self

    def release(self, *gates: str) -> Job:
        """Open these gates, or all gates if none is named."""
        for gate in gates or [path.name for path in self.gates.iterdir()]:
            (self.gates / gate).unlink()
        return self

    def codes(self, within: float = 30) -> list[int]:
        """Wait until all launchers have ended, and return their exit codes in rank order."""
        return [self.code(rank, within) for rank in sorted(self.launchers)]

    def code(self, rank: int, within: float = 30) -> int:
        """Wait until one launcher has ended, and return its exit code as a shell shows it."""
        try:
            status = self.launchers[rank].wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"rank {rank} has not ended within {within} s\n{self.stderr()}") from None
        return status if status >= 0 else 128 - status

    def stderr(self, rank: int | None = None) -> str:
        """Return the standard error of one launcher, or of all launchers."""
        ranks = range(self.size) if rank is None else [rank]
        return "".join(
            (self.folder / f"stderr-{r}").read_text() for r in ranks if (self.folder / f"stderr-{r}").exists()
        )

    def termination(self, rank: int) -> str:
        return (self.folder / f"termination-{rank}").read_text()

    def status(self, rank: int) -> dict[str, Any]:
        """Return the content of the member's status file, or {} if there is no such file yet."""
        try:
            content: dict[str, Any] = json.loads((self.output / f"node_{rank}" / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return content

    def shown(self) -> str:
        """Return what `paddle-launcher status` prints."""
        done = forked.run(["status", self.output.parent])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def find(self, rank: int, program: str) -> psutil.Process | None:
        """Return the process below a launcher that runs this program, such as paddle_trainer."""
        try:
            below = psutil.Process(self.launchers[rank].pid).children(recursive=True)
            return next((p for p in below if any(word.endswith(program) for word in p.cmdline()[:3])), None)
        except psutil.Error:
            return None

    def process(self, rank: int, program: str) -> psutil.Process:
        """Wait until `find` returns a process, and return it."""
        found: psutil.Process = until(lambda: self.find(rank, program), what=f"{program} of rank {rank}")
        return found

    def until_training(self, within: float = 30) -> Job:
        """Wait until the trainer of each member has logged a batch."""
        for rank in range(self.size):
            log = self.output / f"node_{rank}" / "train.log"
            until(partial(_has, log, b"Batch="), within, f"training\n{self.stderr()}")
        return self

    def kill(self, rank: int, program: str, number: int = signal.SIGKILL) -> None:
        self.process(rank, program).send_signal(number)

    def nothing_left(self) -> bool:
        """Wait until all processes of the job have ended."""
        until(lambda: not self.nodes.inside(), 10, f"left running: {self.nodes.inside()}")
        return True

    def passes(self) -> list[str]:
        """Return the names of the complete pass folders."""
        return sorted(folder.parent.name for folder in self.output.glob("pass-*/done"))


def _has(file: Path, words: bytes) -> bool:
    return file.exists() and words in file.read_bytes()


def fresh(volume: Path, folder: Path) -> Path:
    """Return a writable copy of a volume."""
    return Path(shutil.copytree(volume, folder / "volume"))
