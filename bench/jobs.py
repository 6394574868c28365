"""Jobs of three members for benchmarks: as in the tests, on volumes of their own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from tests.support.jobs import Job, fresh, make_volume
from tests.support.nodes import Nodes

MANY = ("--config=trainer_config.lr.py", "--num_passes=100000", "--log_period=1")
_QUIET = 20  # percent of the processors
_TICK = 0.01  # seconds: /proc counts a process's start in these


@contextmanager
def job(lines: int = 300, **environment: str) -> Iterator[Job]:
    """A job that is not started yet."""
    with tempfile.TemporaryDirectory() as name, Nodes(3) as nodes:
        folder = Path(name)
        yield Job(nodes, fresh(make_volume(folder / "data", lines=lines), folder), folder, 3, **environment)


def now() -> float:
    """Seconds since the machine started, the clock of process starts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started(pid: int) -> float:
    """When a process started, by the same clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[19]) * _TICK


def shown(values: list[float]) -> str:
    return f"median {median(values):.2f} s, worst {max(values):.2f} s, {len(values)} runs"


def until_quiet() -> None:
    """Wait up to a minute for a second in which the machine has little to do: what else runs is in the figures."""
    for _ in range(60):
        busy = psutil.cpu_percent(interval=1)
        if busy < _QUIET:
            return
    print(f"# going on although {busy:.0f} % of the processors are busy", flush=True)
