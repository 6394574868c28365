"""Whatever the instant at which the power goes, what the launchers keep on the volume can be read afterwards.

The volume is an ext4 in a file. What the kernel has not yet written to that file is lost with the power, so a copy of
the file is what the next start finds. `POWER_LOSS_INSTANTS` says how many copies are taken: 40, where it is not set.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.base.files import Folder
from tests.support.jobs import JOB, Job, until
from tests.support.nodes import Nodes
from tests.support.passes import SIX, TRAINER, until_saved
from tests.support.supervising import needs_root

pytestmark = [needs_root, pytest.mark.slow]

INSTANTS = int(os.environ.get("POWER_LOSS_INSTANTS", "40"))
SEED = 6
LONGEST_WAIT = 0.2  # seconds between two instants
MiB = 1 << 20
_IN_PASS_1 = "pass-1-batch-1"  # a gate of the stand-in
_FREEZE, _THAW = 0xC0045877, 0xC0045878  # from linux/fs.h


class Pods(Job):
    """Members with the uids that pods have, without which the roster is not kept."""

    def variables(self, rank: int) -> dict[str, str]:
        return super().variables(rank) | {"POD_UID": f"uid-{rank}"}


class Disk:
    """A volume that can lose its power: an ext4 in a file, which is on another ext4 in memory."""

    def __init__(self, folder: Path) -> None:
        self.volume = folder / "volume"
        self._memory, self._below, self._found = (folder / name for name in ("memory", "below", "found"))
        self._file = self._below / "disk"
        self._copies = itertools.count()
        self._mounted: list[Path] = []

    def __enter__(self) -> Disk:
        try:
            self._mount("tmpfs", self._memory, "-t", "tmpfs")
            self._mount(_made(self._memory / "below-disk", 64 * MiB, "-O", "^has_journal"), self._below, "-o", "loop")
            # By default, ext4 writes a file to disk before the file replaces another one. Other file systems do not.
            self._mount(_made(self._file, 32 * MiB), self.volume, "-o", "loop,noauto_da_alloc")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for place in reversed(self._mounted):
            _run("umount", "-l", place)

    @contextmanager
    def after_power_loss(self) -> Iterator[Path]:
        """Yield the volume as it is after a power loss at this time.

        The copy shows one instant: while the file system that holds the file is frozen, neither a process nor the
        kernel writes to the file. The freeze is short also on a busy machine, since no process is started for it: a
        launcher that ends waits two seconds for the volume, no longer. Each copy is a new file: on a busy machine the
        kernel may still keep the loop device of the copy before, with old content.
        """
        copy = self._memory / f"copy-{next(self._copies)}"
        descriptor = os.open(self._below, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _FREEZE, 0)
            try:
                shutil.copyfile(self._file, copy)
            finally:
                fcntl.ioctl(descriptor, _THAW, 0)
        finally:
            os.close(descriptor)
        self._found.mkdir(exist_ok=True)
        _run("mount", "-o", "loop", copy, self._found)  # the mount replays the journal
        try:
            yield self._found
        finally:
            _run("umount", self._found)
            copy.unlink()

    def _mount(self, what: str | Path, place: Path, *options: str) -> None:
        place.mkdir()
        _run("mount", *options, what, place)
        self._mounted.append(place)


def _made(file: Path, size: int, *options: str) -> Path:
    with file.open("wb") as new:
        new.truncate(size)
    _run("mkfs.ext4", "-q", *options, file)
    return file


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture
def disk(data_volume: Path, tmp_path: Path) -> Iterator[Disk]:
    free = subprocess.run(["losetup", "--find"], text=True, capture_output=True, check=False)
    if free.returncode:
        pytest.skip(f"no loop devices here: {free.stderr.strip()}")
    with Disk(tmp_path) as disk:
        shutil.copytree(data_volume, disk.volume, dirs_exist_ok=True)
        _run("sync", "--file-system", disk.volume)  # the shards are much older than the power loss
        yield disk


class Jobs:
    """Several jobs on the same volume, one after the other. In each job, a trainer is killed once."""

    def __init__(self, nodes: Nodes, disk: Disk, folder: Path) -> None:
        self._nodes = nodes
        self._disk = disk
        self._folder = folder
        self._over = threading.Event()
        self.promised: list[str] = []  # files of `.launcher` that must exist from now on
        self.completed = 0

    def run(self) -> None:
        """Run jobs until the end is requested. The last job runs to its end."""
        while not self._over.is_set():
            self._run_one(f"job-{self.completed}")
            self.completed += 1

    def end(self) -> None:
        self._over.set()

    def _run_one(self, name: str) -> None:
        job = Pods(
            self._nodes,
            self._disk.volume,
            self._folder,
            LAUNCHER_JOB_ID=name,
            LAUNCHER_MAX_RESTARTS="3",
            STANDIN_BATCH_SECONDS="0.02",
        )
        job.hold(_IN_PASS_1).start(flags=SIX)
        job.process(1, TRAINER)
        lease = f".leases/{self.completed}"
        self.promised += [f"{name}/secret", f"{name}/generation-0", lease]
        until_saved(job, 0)
        job.kill(1, TRAINER)
        job.release()
        until(lambda: _generation(job.output / ".launcher" / name) == 1, what=job.stderr())
        self.promised.append(f"{name}/generation-1")
        assert job.codes() == [0, 0, 0], job.stderr()
        self.promised += [f"{name}/complete", f"{lease}.over"]


def _generation(record: Path) -> int:
    """Return the latest generation that this job has begun."""
    number: int = json.loads((record / "attempts.json").read_text())["generations"][-1]["number"]
    return number


@pytest.mark.parametrize("write", [Folder.write, Folder.create, Folder.mark])
def test_a_written_file_survives_a_power_loss_after_the_call_has_returned(
    disk: Disk, write: Callable[[Folder, str, bytes], object]
) -> None:
    write(Folder(str(disk.volume), "of", "a-job"), "word", b"kept")
    with disk.after_power_loss() as found:
        assert (found / "of" / "a-job" / "word").read_bytes() == b"kept"


@pytest.mark.timeout(120 + INSTANTS)
def test_the_files_of_the_launchers_can_be_read_after_a_power_loss_at_any_time(
    disk: Disk, three_nodes: Nodes, tmp_path: Path
) -> None:
    instants = random.Random(SEED)
    jobs = Jobs(three_nodes, disk, tmp_path)
    faults: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(jobs.run)
        try:
            for instant in range(INSTANTS):
                _wait(instants.uniform(0, LONGEST_WAIT), running)
                promised = list(jobs.promised)
                with disk.after_power_loss() as found:
                    faults += [f"instant {instant}: {fault}" for fault in _faults(found, promised)]
        finally:
            jobs.end()
        running.result()
    assert not faults, "\n".join(faults)
    for name in ("roster.json", "begun", "secret", "attempts.json"):
        assert list(disk.volume.rglob(name)), f"{name} was never written"


def _wait(seconds: float, running: Future[None]) -> None:
    """Wait for this time. Raise the error of the jobs if they have failed."""
    time.sleep(seconds)
    if running.done():
        running.result()


def _faults(found: Path, promised: list[str]) -> list[str]:
    """Return the files that are damaged, and the files that are lost although the launchers relied on them."""
    output = found / JOB / "output"
    kept = [(path, _WHOLE[name]) for path in output.rglob("*") for name in _WHOLE if re.fullmatch(name, path.name)]
    spoiled = [path for path, is_whole in kept if not is_whole(path.read_bytes())]
    lost = [path for path in (output / ".launcher" / name for name in promised) if not path.exists()]
    return [
        *(f"{path.relative_to(found)} holds {path.read_bytes()[:80]!r}" for path in spoiled),
        *(f"{path.relative_to(found)} is lost" for path in lost),
    ]


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def _matches(pattern: bytes) -> Callable[[bytes], bool]:
    return lambda data: re.fullmatch(pattern, data) is not None


_WHOLE: dict[str, Callable[[bytes], bool]] = {
    r"status\.json|job\.json|attempts\.json|roster\.json": _is_json,
    r"begun": _matches(rb"what earlier jobs had left was moved aside\n"),
    r"secret": _matches(rb"[0-9a-f]{64}"),
    r"generation-\d+": _matches(rb"\S+ [0-9a-f]{16}\n"),
    r"\d+": _is_json,  # a lease
    r"\d+\.over": _matches(rb"\d+\.\d\n"),
    r"complete": _matches(rb"all members have trained\n"),
}
