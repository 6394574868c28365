"""Out of memory: the kernel's files of both cgroup versions, and the report of a death."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path

import pytest

from launcher.processes import oom
from launcher.processes.supervisor import Died, Event, Supervisor
from tests.support.supervising import run, shell, until

LIMIT = 128 << 20
KILLED = "out of memory: the kernel killed a process of this container; the container's memory limit is 128 MiB"

# V1 as in a pod on Linux 6.18, V2 as in the documentation of the kernel.
V1 = {
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
    "memory/memory.limit_in_bytes": "{limit}\n",
}
V2 = {
    "memory.events": "low 0\nhigh 0\nmax 142\noom 3\noom_kill {kills}\noom_group_kill 0\nsock_throttled 0\n",
    "memory.max": "{limit}\n",
}
V2_BEFORE_5_17 = V2 | {"memory.events": "low 0\nhigh 0\nmax 142\noom 3\noom_kill {kills}\n"}
V1_BEFORE_4_13 = V1 | {"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}

versions = pytest.mark.parametrize("files", [V1, V2, V2_BEFORE_5_17], ids=["v1", "v2", "v2 before Linux 5.17"])


def write(folder: Path, files: dict[str, str], kills: int, limit: object = LIMIT) -> str:
    (folder / "memory").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text.format(kills=kills, limit=limit))
    return str(folder)


@versions
def test_a_kill_since_the_watch_began_is_described_with_the_limit(tmp_path: Path, files: dict[str, str]) -> None:
    describe_kill = oom.watch(write(tmp_path, files, 1))
    assert describe_kill() == ""  # an earlier kill does not count
    write(tmp_path, files, 2)
    assert describe_kill() == KILLED


@pytest.mark.parametrize(("files", "unlimited"), [(V1, 9223372036854771712), (V2, "max")], ids=["v1", "v2"])
def test_without_a_limit_the_node_is_named(tmp_path: Path, files: dict[str, str], unlimited: object) -> None:
    describe_kill = oom.watch(write(tmp_path, files, 0, unlimited))
    write(tmp_path, files, 1, unlimited)
    assert describe_kill().endswith("the container has no memory limit, so its node ran out of memory")


@pytest.mark.parametrize("files", [{}, V1_BEFORE_4_13], ids=["no files", "v1 before Linux 4.13"])
def test_without_a_count_nothing_is_described(tmp_path: Path, files: dict[str, str]) -> None:
    describe_kill = oom.watch(write(tmp_path, files, 0))
    write(tmp_path, files, 1)
    assert describe_kill() == ""


def test_a_death_is_reported_with_a_kill_since_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom, "watch", partial(oom.watch, write(tmp_path, V1, 0)))

    async def killed(*, by_the_kernel: bool) -> str:
        events: list[Event] = []
        supervisor = Supervisor(events.append, secrets.token_hex(8))
        supervisor.start(shell("touch started; until [ -e go ]; do sleep 0.01; done; kill -9 $$", cwd=str(tmp_path)))
        await until((tmp_path / "started").exists)
        if by_the_kernel:
            write(tmp_path, V1, 1)
        (tmp_path / "go").touch()
        await until(lambda: events)
        await supervisor.close(1)
        (death,) = events
        assert isinstance(death, Died)
        assert death.code == 137
        return death.out_of_memory

    assert run(killed(by_the_kernel=True)) == KILLED
    assert run(killed(by_the_kernel=False)) == ""
