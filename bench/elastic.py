"""Compare an elastic job of this launcher with `python -m paddle.distributed.launch --nnodes 2:4` and etcd.

    PADDLE_2=.../python PADDLE_3=.../python ETCD=.../etcd ETCD3=.../folder python -m bench elastic
    ... python -m bench.elastic killed    # only this case

Two or three of at most four nodes train passes of 4 s. In the middle of a pass, one of them is killed or gets SIGTERM,
or a node is added. ETCD names the program etcd. ETCD3 is a folder with the packages of Paddle's launcher for etcd:

    python -m pip install --target .../folder --no-deps etcd3==0.12.0 grpcio==1.60.2 tenacity six

A newer grpcio crashes with Paddle 2.6.2.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench.jobs import now, until_quiet
from bench.sides import Peer, Side, fresh
from tests.support.jobs import until

RUNS = 5
SLOW_RUNS = 3
WITHIN = 180.0  # seconds
PROGRAM = Path(__file__).with_name("programs") / "elastic_worker.py"
STEPS, SECONDS = 40, 0.1  # as in the program
LEAST, MOST = 2, 4
VERSIONS = {"2.6.2": "PADDLE_2", "3.3.1": "PADDLE_3"}
_ETCD = "127.0.0.1:2379"
_ELASTIC = {
    "CONF_PADDLE_GRADIENT_NUM": f"{LEAST}:{MOST}",
    "LAUNCHER_MODE": "collective",
    "LAUNCHER_MAX_RESTARTS": "3",
    "LAUNCHER_SHRINK": "now",
}


@dataclass(frozen=True)
class Step:
    """A step of one worker: when it ended, how many workers there were, its number in the whole training."""

    pid: int
    at: float
    size: int
    number: int


@dataclass(frozen=True)
class Change:
    """What a change of size cost, in seconds.

    until_all: from the event until all workers have trained a step
    pause: the time without a step
    lost: the training that was repeated
    """

    until_all: float
    pause: float
    lost: float


class Ours(Side):
    """An elastic job of this launcher."""

    def add(self, python: str, *ranks: int) -> None:
        self.start(*ranks, flags=("--", python, str(PROGRAM), str(self.folder)))


class Theirs(Peer):
    """An elastic job of Paddle's launcher. etcd runs beside the nodes."""

    def add(self, python: str, *ranks: int) -> None:
        if not self.launchers:
            self._start_etcd()
        nodes = (f"--master=etcd://{_ETCD}", f"--nnodes={LEAST}:{MOST}", "--job_id=elastic", "--elastic_level=1")
        for rank in ranks:
            workdir = self.folder / f"work-{rank}"
            workdir.mkdir(exist_ok=True)
            with (self.folder / f"stderr-{rank}").open("ab") as log:
                self.launchers[rank] = self.nodes.popen(
                    [python, "-m", "paddle.distributed.launch", *nodes, str(PROGRAM), str(self.folder)],
                    env=self._variables(rank),
                    cwd=workdir,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    def _variables(self, rank: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "GLOO_SOCKET_IFNAME": self.nodes.devices[rank],
            "POD_IP": self.nodes.addresses[rank],
            "PYTHONPATH": _given("ETCD3"),
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",  # etcd3 needs it with protobuf 4 and newer
        }

    def _start_etcd(self) -> None:
        log = (self.folder / "etcd").open("ab")
        urls = ("--listen-client-urls", f"http://{_ETCD}", "--advertise-client-urls", f"http://{_ETCD}")
        peers = (
            "--listen-peer-urls",
            "http://127.0.0.1:2380",
            "--initial-advertise-peer-urls",
            "http://127.0.0.1:2380",
        )
        cluster = ("--initial-cluster", "default=http://127.0.0.1:2380", "--data-dir", str(self.folder / "etcd-data"))
        self.nodes.popen([_given("ETCD"), *urls, *peers, *cluster], stdout=log, stderr=log)


Elastic = Ours | Theirs


def steps(job: Elastic) -> list[Step]:
    """Return all steps so far, in the order of time."""
    found = []
    for trace in job.folder.glob("trace-*"):
        pid = int(trace.name.partition("-")[2])
        for line in trace.read_text().splitlines():
            words = line.split()
            if len(words) == 3:
                found.append(Step(pid, float(words[0]), int(words[1]), int(words[2])))
    return sorted(found, key=lambda step: step.at)


def measure(kind: type[Ours] | type[Theirs], python: str, what: str) -> Change:
    """Return what one change of size cost."""
    with fresh(kind, MOST, _ELASTIC, volume=kind is Ours) as job:
        assert isinstance(job, Ours | Theirs)
        began = LEAST if what == "joins" else LEAST + 1
        job.add(python, *range(began))
        until(lambda: _in_the_middle_of_a_pass(job, began), WITHIN, f"{began} workers train")
        before = steps(job)[-1]
        event = now()
        if what == "joins":
            job.add(python, began)
        else:
            _end(job, began - 1, signal.SIGKILL if what == "killed" else signal.SIGTERM)
        size = began + 1 if what == "joins" else began - 1
        after = until(lambda: _first_steps(job, size, event), WITHIN, f"{size} workers train")
        last = max((step for step in steps(job) if step.size == began), key=lambda step: step.at, default=before)
        newest = max(step.number for step in steps(job) if step.size == began)
        until_all = max(step.at for step in after)
        repeated = newest + 1 - min(step.number for step in after)
        return Change(until_all - event, until_all - last.at, max(0, repeated) * SECONDS)


def _in_the_middle_of_a_pass(job: Elastic, size: int) -> bool:
    recent = [step for step in steps(job)[-size:] if step.size == size]
    return len({step.pid for step in recent}) == size and all(
        step.number >= STEPS and step.number % STEPS == STEPS // 2 for step in recent
    )


def _first_steps(job: Elastic, size: int, since: float) -> list[Step] | None:
    """Return the first step of each worker after the event, if all of them have trained one."""
    first: dict[int, Step] = {}
    for step in steps(job):
        if step.at > since and step.size == size:
            first.setdefault(step.pid, step)
    return list(first.values()) if len(first) >= size else None


def _end(job: Elastic, rank: int, number: signal.Signals) -> None:
    """Kill all processes of a node at once, or tell its launcher to stop."""
    launcher = psutil.Process(job.launchers[rank].pid)
    if number == signal.SIGTERM:
        launcher.terminate()
        return
    for process in [launcher, *launcher.children(recursive=True)]:
        process.kill()


def _given(variable: str) -> str:
    if not os.environ.get(variable):
        raise SystemExit(f"{variable} must be set: {__doc__}")
    return os.path.abspath(os.environ[variable])


def main(arguments: list[str]) -> None:
    cases = arguments or ["killed", "stops", "joins"]
    sides: Mapping[str, type[Ours] | type[Theirs]] = {Side.name: Ours, Peer.name: Theirs}
    for version, variable in VERSIONS.items():
        for what in cases:
            for name, kind in sides.items():
                found = []
                for _ in range(RUNS if kind is Ours else SLOW_RUNS):
                    until_quiet()
                    try:
                        found.append(measure(kind, _given(variable), what))
                    except AssertionError as failure:
                        print(f"# {name}, {version}, {what}: {str(failure)[-2000:]}", flush=True)
                print(f"{what}, {version}, {name}: {_said(found)}", flush=True)
                time.sleep(1)


def _said(found: list[Change]) -> str:
    if not found:
        return "never"
    shown = (
        f"{label} median {median(values):.1f} s, worst {max(values):.1f} s"
        for label, values in (
            ("until all train", [change.until_all for change in found]),
            ("pause", [change.pause for change in found]),
            ("lost", [change.lost for change in found]),
        )
    )
    return f"{'; '.join(shown)}; {len(found)} runs"


if __name__ == "__main__":
    main(sys.argv[1:])
