"""Staging against `cp -r`: python -m bench.staging [--folder FOLDER] [--runs N]. FOLDER needs about 2.5 GiB.

Staging and `cp -r` run alternately, into different folders, and the medians are compared. The time of staging includes
the start of its child process. The slow volume is a FUSE folder (slowfs.c). Its rows are left out without gcc, fuse3,
libfuse3-dev or /dev/fuse.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from launcher.data.staging import Copy, Staging

REPOSITORY = str(Path(__file__).resolve().parent.parent)
MIB = 1024 * 1024
_FORGET = 6.0  # seconds; ext4 is slow to find free inodes if many were freed in the last 5 s


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the data is made, and removed")
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-staging-") as name:
        folder = Path(name)
        print(f"in {given.folder}, {os.cpu_count()} cores, medians of {given.runs} alternating runs")
        print(f"{'case':<44}{'cp -r':>9}{'staging':>9}{'ratio':>8}   slowest of each")
        measure("one file of 1 GiB", make(folder / "large", 1, 1024 * MIB), folder, given.runs)
        shutil.rmtree(folder / "large")
        measure("10,000 files of 10 KiB", make(folder / "small", 10_000, 10 * 1024), folder, given.runs)
        with slow(make(folder / "behind", 2_000, 10 * 1024), folder) as mounted:
            if mounted:
                measure("2,000 files of 10 KiB, 1 ms an operation", mounted, folder, given.runs)
        with slow(make(folder / "behind-large", 1, 256 * MIB), folder) as mounted:
            if mounted:
                measure("one file of 256 MiB, 1 ms an operation", mounted, folder, given.runs)


def make(folder: Path, count: int, size: int) -> Path:
    """Make `count` files of random bytes. Return the folder."""
    folder.mkdir()
    for number in range(count):
        with open(folder / f"{number:05d}", "wb") as file:
            for _ in range(0, size, MIB):
                file.write(os.urandom(min(size, MIB)))
    return folder


def measure(case: str, source: Path, folder: Path, runs: int) -> None:
    """Measure one case, and print its row of the table."""
    copied: list[float] = []
    staged: list[float] = []
    targets = folder / "targets"
    for number in range(runs):
        copied.append(
            timed(lambda to: subprocess.run(["cp", "-r", source, to / "data"], check=True), targets / f"c{number}")
        )
        staged.append(timed(lambda to: asyncio.run(stage(source, to)), targets / f"s{number}"))
    shutil.rmtree(targets)
    time.sleep(_FORGET)
    ours, theirs = statistics.median(staged), statistics.median(copied)
    row = f"{case:<44}{theirs:>8.2f}s{ours:>8.2f}s{ours / theirs:>8.2f}"
    print(f"{row}   {max(copied):.2f}s, {max(staged):.2f}s", flush=True)


def timed(work: Callable[[Path], object], target: Path) -> float:
    """Return the seconds that the work takes with an idle disk and an empty target."""
    target.mkdir(parents=True)
    os.sync()
    start = time.perf_counter()
    work(target)
    seconds = time.perf_counter() - start
    if len(os.listdir(target / "data")) == 1:
        shutil.rmtree(target)  # one large file; many small files are removed at the end, see _FORGET
    return seconds


async def stage(source: Path, target: Path) -> None:
    copy = Copy(str(source), str(target / "data"), "shard of rank 0", str(source.parent), 1)
    staging = Staging([copy], str(target), {**os.environ, "PYTHONPATH": REPOSITORY})
    try:
        await staging.run()
    finally:
        await staging.close()


@contextmanager
def slow(behind: Path, folder: Path) -> Iterator[Path | None]:
    """Mount the folder with slowfs. Yield the mount point, or None if slowfs cannot be built or mounted."""
    program, point = folder / "slowfs", folder / f"{behind.name}-mounted"
    point.mkdir()
    try:
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
        ).stdout.split()
        code = Path(__file__).with_name("slowfs.c")
        subprocess.run(["gcc", "-O2", code, *flags, "-o", program], check=True, capture_output=True)
        subprocess.run(
            [program, point, "-o", "max_threads=64,max_idle_threads=64"],
            env={**os.environ, "SLOWFS_ROOT": str(behind)},
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"left out, no slow volume: {error}")
        yield None
        return
    try:
        yield point
    finally:
        subprocess.run(["fusermount3", "-u", point], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
