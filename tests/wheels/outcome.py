"""The output and the files of the quick start, and its processes while it runs."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from pathlib import Path

import psutil

from tests.support.jobs import Job, until

PROGRAMS = Path(__file__).parent / "programs"
PASSES, EXAMPLES = 5, 3000
WITHIN = 90  # seconds; on an idle machine, a gang of six takes 10 s
FOR_EVER = "--passes=1000000"
_SEEN = re.compile(r"^seen trainer=(\d+) lines=(\d+) least=(\d+) most=(\d+) sha256=(\w+)$", re.MULTILINE)
_ACCURACY = re.compile(r"^accuracy=([\d.]+) loss=([\d.]+) on \d+ held-out", re.MULTILINE)
_LISTENS = "0A"  # in /proc/net/tcp


def log(job: Job, rank: int) -> str:
    """Return the output of a trainer."""
    return (job.output / f"node_{rank}" / "train.log").read_text()


def accuracy(text: str) -> tuple[float, float]:
    """Return accuracy and loss on the held-out reviews."""
    (found,) = _ACCURACY.findall(text)
    return float(found[0]), float(found[1])


def assert_seen(said: str, rank: int, job_folder: Path, passes: int) -> None:
    """Check that the trainer learned from each line of its own shard once per pass."""
    shard = (job_folder / str(rank) / "data" / "train.txt").read_bytes()
    lines, digest = shard.count(b"\n"), hashlib.sha256(shard).hexdigest()
    assert _SEEN.findall(said) == [(str(rank), str(lines), str(passes), str(passes), digest)]


def assert_each_shard_was_seen(job: Job, passes: int) -> None:
    for rank in range(job.size):
        assert_seen(log(job, rank), rank, job.output.parent, passes)


def assert_models(job: Job, passes: int) -> None:
    """Check that there is one complete model per pass."""
    assert job.passes() == [f"pass-{number:05d}" for number in range(passes)]
    assert (job.output / job.passes()[-1] / "model.pdparams").stat().st_size > 0


def find(job: Job, rank: int, role: str) -> psutil.Process | None:
    """Return the server (PSERVER) or the trainer (TRAINER) of a node, or None if it has not started."""
    try:
        below = psutil.Process(job.launchers[rank].pid).children(recursive=True)
        return next((process for process in below if process.environ().get("TRAINING_ROLE") == role), None)
    except psutil.Error:
        return None


def process(job: Job, rank: int, role: str) -> psutil.Process:
    """Wait for this process, and return it."""
    found: psutil.Process = until(partial(find, job, rank, role), WITHIN, f"{role} of rank {rank}\n{job.stderr()}")
    return found


def listens(process: psutil.Process, port: int) -> bool:
    """Return whether a process in this network listens on the port, at the given address or at all addresses."""
    address = process.environ()["POD_IP"].split(".")
    own = "".join(f"{int(part):02X}" for part in reversed(address))
    places = {f"{host}:{port:04X}" for host in (own, "00000000")} | {f"{'0' * 32}:{port:04X}"}
    sockets = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/{process.pid}/net/{family}").read_text().splitlines()
    ]
    return any(words[1] in places and words[3] == _LISTENS for words in sockets)
