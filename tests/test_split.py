"""A network that is cut in two while a job trains: no half goes on alone, and together they go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gangs import Job, make_volume, until
from tests.nodes import Nodes
from tests.supervising import needs_root
from tests.test_restarts import MARK, PASSES, SIX, TRAINER, history, log, saved, until_saved

pytestmark = needs_root

PSERVER = "paddle_pserver_main.py"
NEAR, FAR = (0, 1, 2), (3, 4)  # the hub is with the near ones
SILENCE = 15  # the shortest that is allowed
OUT_OF_STEP = 3.5  # seconds between the starts of the halves; they say and check every 5 s that they live


class TwoSwitches(Nodes):
    """Nodes with a network namespace each, plugged into one switch, until some are plugged into the other one."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.devices = ["nic"] * count
        self.addresses = [f"10.77.0.{number}" for number in range(1, count + 1)]

    def __enter__(self) -> TwoSwitches:
        self._holders = [_holder() for _ in range(len(self.addresses) + 1)]
        self._switches = self._holders.pop()
        for name in ("together", "apart"):
            self._plug("add", name, "type", "bridge")
            self._plug("set", name, "up")
        for number, (holder, address) in enumerate(zip(self._holders, self.addresses, strict=True)):
            self._plug("add", f"port-{number}", "type", "veth", "peer", "name", "nic", "netns", str(holder.pid))
            self._plug("set", f"port-{number}", "master", "together", "up")
            _inside(holder, "ip", "address", "add", f"{address}/24", "dev", "nic")
            for device in ("lo", "nic"):
                _inside(holder, "ip", "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for holder in (*self._holders, self._switches):
            holder.kill()
            holder.wait()

    def cut(self, *nodes: int) -> None:
        """These reach each other, but no one else."""
        for node in nodes:
            self._plug("set", f"port-{node}", "master", "apart")

    def heal(self, *nodes: int) -> None:
        for node in nodes:
            self._plug("set", f"port-{node}", "master", "together")

    def popen(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        """Start a process on the node whose address its POD_IP is."""
        holder = self._holders[self.addresses.index(options["env"]["POD_IP"])]
        process = subprocess.Popen([*_entering(holder), *argv], start_new_session=True, **options)
        self._started.append(process)
        return process

    def inside(self) -> list[int]:
        """The processes that live on any node now."""
        nodes = {_network(holder.pid) for holder in self._holders}
        pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        return [pid for pid in pids - {holder.pid for holder in self._holders} if _network(pid) in nodes]

    def _plug(self, *words: str) -> None:
        _inside(self._switches, "ip", "link", *words)


def _holder() -> subprocess.Popen[bytes]:
    """A process that keeps a network namespace of its own alive."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    until(lambda: holder.poll() is not None or _network(holder.pid) not in (None, _network(os.getpid())))
    return holder


def _network(pid: int) -> str | None:
    """None where there is no such process any more."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _entering(holder: subprocess.Popen[bytes]) -> list[str]:
    return ["nsenter", f"--target={holder.pid}", "--net", "--"]


def _inside(holder: subprocess.Popen[bytes], *argv: str) -> None:
    subprocess.run([*_entering(holder), *argv], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[TwoSwitches]:
    if not shutil.which("ip"):
        pytest.skip("needs ip (iproute2)")
    with TwoSwitches(len(NEAR + FAR)) as network:
        yield network


@pytest.fixture
def split_job(network: TwoSwitches, tmp_path: Path) -> Job:
    """Five members, that wait for each other."""
    size = len(NEAR + FAR)
    return Job(
        network,
        make_volume(tmp_path, size),
        tmp_path,
        size,
        LAUNCHER_MAX_RESTARTS="3",
        LAUNCHER_SILENCE=str(SILENCE),
        LAUNCHER_STOP_GRACE="2",
        STANDIN_BATCH_SECONDS="0.05",
    )


def children(job: Job, ranks: Sequence[int]) -> list[str]:
    """What of Paddle runs on these members."""
    return [f"{program} of rank {rank}" for rank in ranks for program in (TRAINER, PSERVER) if job.find(rank, program)]


def may_begin(job: Job, rank: int) -> bool:
    """Whether it would start the next generation now, if all others did."""
    return "waiting up to" in job.stderr(rank)


def claims(job: Job) -> list[str]:
    return sorted(claim.name for claim in (job.output / ".launcher" / "job-1").glob("generation-*"))


def test_a_network_cut_in_two_stops_both_halves_and_once_healed_the_job_completes(
    split_job: Job, network: TwoSwitches
) -> None:
    job = split_job.start(*NEAR, flags=SIX)
    time.sleep(OUT_OF_STEP)
    job.start(*FAR, flags=SIX)
    until_saved(job, 0)
    assert all(children(job, [rank]) for rank in NEAR + FAR)
    network.cut(*FAR)
    until(lambda: any(may_begin(job, rank) for rank in NEAR), 3 * SILENCE, f"the near half waits\n{job.stderr()}")
    assert not children(job, FAR), "one half could begin while the other one still runs"
    until(lambda: all(may_begin(job, rank) for rank in NEAR + FAR), SILENCE, f"all wait\n{job.stderr()}")
    assert not children(job, NEAR + FAR)
    assert claims(job) == ["generation-0"]
    assert not saved(job, PASSES - 1)
    network.heal(*FAR)
    assert job.codes(60) == [0] * job.size, job.stderr()
    assert job.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert [one["number"] for one in history(job)] == [0, 1]
    assert history(job)[0]["first_cause"]["kind"] == "lost"
    assert claims(job) == ["generation-0", "generation-1"]
    for rank in NEAR + FAR:
        assert [number for number, _ in MARK.findall(log(job, rank))] == ["0", "1"]
    assert job.nothing_left()
