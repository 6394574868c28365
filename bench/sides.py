"""One job with this launcher, with Paddle's launcher, or without one: on the same nodes, with the same program."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.processes import listening
from tests.support.jobs import Job, make_volume, until
from tests.support.nodes import Nodes

WORKER = Path(__file__).with_name("programs") / "worker.py"
SECRET = "correct-horse-battery-staple"  # the text to search for in logs
_MASTER_PORT = 9000
_WITHIN = 90


class Side(Job):
    """A job whose members are started by this project's launcher."""

    name = "paddle-launcher"

    def launch(self, python: str, how: str, *ranks: int) -> Side:
        """Start the worker on these nodes, or on all nodes if none is named."""
        self.start(*ranks, flags=("--", python, str(WORKER), str(self.folder), how))
        return self

    def serve(self, python: str, program: Path) -> Side:
        """Start a parameter server and a trainer on each node."""
        self.environment["LAUNCHER_MODE"] = "ps"
        self.start(flags=("--", python, str(program)))
        return self

    def marked(self, what: str, *ranks: int) -> float:
        """Wait until these workers, or all workers, have written this mark. Return the time of the last one."""
        files = [self.folder / f"{what}-{rank}" for rank in ranks or range(self.size)]
        until(lambda: all(file.exists() for file in files), _WITHIN, f"{what}\n{self.stderr()}")
        return max(float(file.read_text()) for file in files)

    def own_processes(self, rank: int) -> list[psutil.Process]:
        """Return the launcher of a node and its helper processes, without the workers."""
        launcher = psutil.Process(self.launchers[rank].pid)
        return [one for one in (launcher, *launcher.children(recursive=True)) if not _is_worker(one)]

    def files_with_the_secret(self) -> list[tuple[Path, str]]:
        """Return the files that contain the secret, with their modes. Links are not followed."""
        files = [file for file in self.folder.rglob("*") if file.is_file() and not file.is_symlink()]
        found = [file for file in files if SECRET.encode() in file.read_bytes()]
        return [(file.relative_to(self.folder), f"{file.stat().st_mode & 0o777:04o}") for file in found]


class Peer(Side):
    """The same job, started by `python -m paddle.distributed.launch`."""

    name = "paddle.distributed.launch"

    def launch(self, python: str, how: str, *ranks: int) -> Peer:
        for rank in ranks or range(self.size):
            self._start(python, rank, (), str(WORKER), str(self.folder), how)
        return self

    def serve(self, python: str, program: Path) -> Peer:
        for rank in range(self.size):
            self._start(python, rank, ("--run_mode=ps", "--server_num=1", "--trainer_num=1"), str(program))
        return self

    def _start(self, python: str, rank: int, options: tuple[str, ...], *words: str) -> None:
        workdir = self.folder / f"work-{rank}"
        workdir.mkdir()
        if self.size > 1:
            master = f"--master={self.nodes.addresses[0]}:{_MASTER_PORT}"
            options = (master, f"--nnodes={self.size}", f"--rank={rank}", *options)
        with (self.folder / f"stderr-{rank}").open("ab") as log:
            self.launchers[rank] = self.nodes.popen(
                [python, "-m", "paddle.distributed.launch", *options, *words],
                env=_basic(self, rank) | {"POD_IP": self.nodes.addresses[rank]} | self.environment,
                cwd=workdir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


class Plain(Side):
    """The same job without a launcher, with variables set by hand. This measures Paddle's own time."""

    name = "variables by hand"

    def launch(self, python: str, how: str, *ranks: int) -> Plain:
        endpoints = [f"{address}:{_MASTER_PORT}" for address in self.nodes.addresses[: self.size]]
        for rank in ranks or range(self.size):
            variables = {
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINERS_NUM": str(self.size),
                "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
                "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
                "PADDLE_MASTER": endpoints[0],
                "PADDLE_DISTRI_BACKEND": "gloo",
            }
            with (self.folder / f"stderr-{rank}").open("ab") as log:
                self.launchers[rank] = self.nodes.popen(
                    [python, str(WORKER), str(self.folder), how],
                    env=_basic(self, rank) | variables,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        return self


class InOrder(Plain):
    """Like Plain, but other workers start only after the first one listens, so that no connection fails."""

    name = "variables by hand, in order"

    def launch(self, python: str, how: str, *ranks: int) -> InOrder:
        super().launch(python, how, 0)
        until(lambda: _MASTER_PORT in listening(self.launchers[0].pid), _WITHIN, self.stderr())
        super().launch(python, how, *range(1, self.size))
        return self


@contextmanager
def fresh(
    kind: type[Side], size: int, environment: Mapping[str, str] | None = None, *, volume: bool = False
) -> Iterator[Side]:
    """Yield a job that is not started yet, in its own network namespace. Everything is removed at the end."""
    with tempfile.TemporaryDirectory() as name, Nodes(size) as nodes:
        folder = Path(name)
        shared = make_volume(folder, size, lines=60) if volume else None
        yield kind(nodes, shared, folder, size, **(environment or {}))


def _basic(job: Job, rank: int) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "GLOO_SOCKET_IFNAME": job.nodes.devices[rank],
    }


def _is_worker(process: psutil.Process) -> bool:
    return str(WORKER) in process.cmdline()[1:3]
