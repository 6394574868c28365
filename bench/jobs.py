"""Jobs of three members for benchmarks, as in the tests. Each job has its own volume."""

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
_TICK = 0.01  # seconds: the unit of process starts in /proc


@contextmanager
def job(lines: int = 300, **environment: str) -> Iterator[Job]:
    """Yield a job that is not started yet."""
    with tempfile.TemporaryDirectory() as name, Nodes(3) as nodes:
        folder = Path(name)
        yield Job(nodes, fresh(make_volume(folder / "data", lines=lines), folder), folder, 3, **environment)


def now() -> float:
    """Return the seconds since the machine started. Process starts use the same clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started(pid: int) -> float:
    """Return when a process started, by the clock of `now`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[19]) * _TICK


def shown(values: list[float]) -> str:
    return f"median {median(values):.2f} s, worst {max(values):.2f} s, {len(values)} runs"


def until_quiet() -> None:
    """Wait up to a minute until the machine is idle for a second: other work would change the figures."""
    for _ in range(60):
        busy = psutil.cpu_percent(interval=1)
        if busy < _QUIET:
            return
    print(f"# the benchmark continues, although {busy:.0f} % of the processors are busy", flush=True)
