"""Staging copies completely or not at all, even if sources change, disks are full or stalled, or processes die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.data import space, tree
from launcher.data.copier import Copier
from launcher.data.pool import Pool
from launcher.data.staging import Staging
from launcher.errors import Exit, Failure
from tests.support.staging import ENV, failing, scanned, shard, work
from tests.support.supervising import alive, eventually, needs_root

# ---- changed files and full disks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["grows", "is-touched", "vanishes"])
def test_a_file_that_changes_while_it_is_copied_is_named(job: Path, what: str) -> None:
    source = job / "0" / "data"
    with Pool() as pool:
        found = scanned(pool, source)
        if what == "grows":
            (source / "train.txt").write_text("more lines than before\n")
        elif what == "is-touched":
            os.utime(source / "train.txt", ns=(1, 1))
        else:
            (source / "train.txt").unlink()
        with pytest.raises(Failure) as failed:
            tree.copy(pool, found, found.files, found.links, os.fsencode(work(job)), new_root=True)
    assert failed.value.code == Exit.IO_FAILED
    assert str(source / "train.txt") in failed.value.message


@needs_root
@pytest.mark.parametrize(("options", "count", "size"), [("size=1m", 2, 800_000), ("nr_inodes=20", 40, 10)])
def test_too_little_space_is_reported_with_numbers_before_anything_is_copied(
    job: Path, options: str, count: int, size: int
) -> None:
    for number in range(count):
        (job / "0" / "data" / str(number)).write_bytes(b"x" * size)
    with mounted("-t", "tmpfs", "-o", options, "none", work(job)):
        failure = failing(job, shard(job, 0))
        assert failure.code == Exit.CANNOT_WRITE
        assert " needed, " in failure.message
        assert " free: " in failure.message
        assert str(work(job)) in failure.message
        assert os.listdir(work(job)) == []


@needs_root
def test_no_file_is_left_if_the_file_system_becomes_full_during_a_copy(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "check", lambda *_: None)
    (job / "0" / "data" / "large").write_bytes(b"x" * 3_000_000)
    copy = shard(job, 0).__dict__
    with mounted("-t", "tmpfs", "-o", "size=2m", "none", work(job)):
        request = {"copies": [copy], "record": str(work(job) / ".paddle-launcher-staged.json")}
        with Pool() as pool:
            copier = Copier(request, pool)
            with pytest.raises(Failure) as failed:
                copier.run()
            pool.close()
            copier.clean()
        assert failed.value.code == Exit.CANNOT_WRITE
        assert "No space left" in failed.value.message
        assert os.listdir(work(job)) == [".paddle-launcher-staged.json"]


@needs_root
def test_a_read_only_work_directory_is_reported(job: Path) -> None:
    with mounted("-t", "tmpfs", "-o", "ro", "none", work(job)):
        failure = failing(job, shard(job, 0))
    assert failure.code == Exit.CANNOT_WRITE
    assert "read-only" in failure.message


# ---- stalled disks ---------------------------------------------------------------------------------------------------


@needs_root
def test_close_returns_although_the_disk_stalls_and_an_incomplete_shard_is_never_renamed(
    job: Path, tmp_path: Path
) -> None:
    with frozen(job, tmp_path) as target:

        async def run() -> float:
            staging = Staging([shard(job, 0, target / "data")], str(target), {**ENV, "STUCK_IN": str(target)})
            running = asyncio.ensure_future(staging.run())
            await asyncio.get_running_loop().run_in_executor(None, eventually, lambda: _stuck(target))
            start = time.monotonic()
            await staging.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return time.monotonic() - start

        assert asyncio.run(run()) < 5
        assert not (target / "data").exists()


@needs_root
def test_the_death_of_the_child_is_noticed_although_its_workers_wait_for_a_stalled_disk(
    job: Path, tmp_path: Path
) -> None:
    with frozen(job, tmp_path) as target:
        env = {**ENV, "STUCK_IN": str(target)}

        async def run() -> None:
            staging = Staging([shard(job, 0, target / "data")], str(target), env)
            running = asyncio.ensure_future(staging.run())
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, eventually, lambda: _stuck(target))
            os.kill(_parent(_stuck(target)[0]), signal.SIGKILL)
            with pytest.raises(Failure, match=r"code 137.*out of memory"):
                await asyncio.wait_for(running, 10)
            await staging.close()

        asyncio.run(run())


@needs_root
def test_the_child_ends_after_its_pipe_is_closed_although_the_disk_stalls(job: Path, tmp_path: Path) -> None:
    with frozen(job, tmp_path) as target:
        child = subprocess.Popen(
            [sys.executable, "-m", "launcher.data.stage_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**ENV, "STUCK_IN": str(target)},
        )
        assert child.stdin is not None
        assert child.stdout is not None
        request = {"copies": [shard(job, 0, target / "data").__dict__], "record": str(target / "record")}
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.close()
        assert b"scanning" in child.stdout.readline()  # the next message would come 10 s later
        assert _stuck(target)
        child.stdout.close()
        child.wait(5)


# ---- workers ---------------------------------------------------------------------------------------------------------


def test_workers_do_not_outlive_the_child() -> None:
    code = (
        "import time\n"
        "from launcher.data.pool import Pool\n"
        "with Pool() as pool:\n"
        "    pool.on_tick = lambda: print(*(worker.pid for worker in pool._workers.values()), flush=True)\n"
        "    pool.run([(time.sleep, 60), (time.sleep, 60)])\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=ENV, text=True)
    assert holder.stdout is not None
    workers = [int(pid) for pid in holder.stdout.readline().split()]
    assert len(workers) == 2
    holder.kill()
    holder.communicate()
    eventually(lambda: not any(alive(pid) for pid in workers))


def test_a_killed_worker_is_a_failure() -> None:
    with Pool() as pool:
        pool.call(time.sleep, 0)
        os.kill(next(iter(pool._workers.values())).pid, signal.SIGKILL)
        with pytest.raises(Failure, match=r"killed by signal 9.*memory"):
            pool.call(time.sleep, 5)


def test_there_are_many_workers_if_they_wait_and_few_if_they_compute() -> None:
    with Pool() as waiting:
        for _ in range(30):  # a busy machine starts processes slowly
            waiting.run([(time.sleep, 0.05)] * 100)  # long, so that a busy machine does not make it look like computing
            if len(waiting._workers) > 16:
                break
        assert len(waiting._workers) > 16
    with Pool() as computing:
        computing.run([(sum, list(range(100_000)))] * 60)
        assert len(computing._workers) < 16


def _stuck(folder: Path) -> list[str]:
    """Return the processes that were started for this folder and wait for a disk."""
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _waits_for_disk(pid, os.fsencode(folder))]


def _parent(pid: str) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _waits_for_disk(pid: str, folder: bytes) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "D" and b"STUCK_IN=" + folder in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@contextlib.contextmanager
def mounted(*arguments: object) -> Iterator[None]:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(arguments[-1])], check=True)


@contextlib.contextmanager
def frozen(job: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield a destination on a disk where writes never return, as on a stalled volume."""
    image, target = tmp_path / "image", tmp_path / "frozen"
    target.mkdir()
    with open(image, "wb") as file:
        file.truncate(32 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted("-o", "loop", image, target):
        subprocess.run(["fsfreeze", "-f", target], check=True)
        try:
            yield target
        finally:
            subprocess.run(["fsfreeze", "-u", target], check=True)
