"""Measure how fast the launcher writes a process's output to a log file, compared with `cat > file`, and its memory.

Also measure which share of this time the search for numbers (loss, speed) takes.

Run: python -m bench.log_path [MEBIBYTES]. It writes to a temporary folder (TMPDIR), which should not be in memory.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launcher.base.log import TextHandler, shown_by
from launcher.base.spawn import become_subreaper, reap_orphans
from launcher.model import Numbers, Process
from launcher.paddle import NumberFinder
from launcher.processes.supervisor import Died, Event, NumbersSeen, PassDone, Supervisor

ROUNDS = 5
MEBIBYTE = 1024 * 1024
BATCH = (
    b"I1116 09:10:17.0 50 TrainerInternal.cpp:165]  Batch=20 samples=1000 AvgCost=0.61 CurrentCost=0.58 Eval: e=0.3\n"
)
PASS = b"I1116 09:10:18.0 50 TrainerInternal.cpp:182]  Pass=%d Batch=60 samples=3000 AvgCost=0.55 Eval: e=0.3\n"


def make_output(path: Path, mebibytes: int) -> int:
    """Write a log of this size, with one pass per MiB. Return the number of the last pass."""
    with path.open("wb") as file:
        for number in range(mebibytes):
            file.write((BATCH * (MEBIBYTE // len(BATCH)))[: MEBIBYTE - 200] + b"\n" + PASS % number)
    return mebibytes - 1


def by_cat(source: Path, folder: Path) -> float:
    """Return the seconds that `cat` takes to copy the source through a pipe to a file."""
    start = time.monotonic()
    line = f"cat {shlex.quote(str(source))} | cat > {shlex.quote(str(folder / 'cat.log'))}"
    subprocess.run(["sh", "-c", line], check=True)
    return time.monotonic() - start


class TimedFinder(NumberFinder):
    """Counts the seconds of processor time that its calls take."""

    def __init__(self) -> None:
        super().__init__()
        self.took = 0.0

    def newest_in(self, data: bytearray, begin: int, end: int, pass_at: int | None = None) -> Numbers | None:
        start = time.thread_time()
        try:
            return super().newest_in(data, begin, end, pass_at)
        finally:
            self.took += time.thread_time() - start

    def rest(self, is_end: bool = False) -> Numbers | None:
        start = time.thread_time()
        try:
            return super().rest(is_end)
        finally:
            self.took += time.thread_time() - start


def by_launcher(source: Path, folder: Path, last_pass: int) -> tuple[float, int, float]:
    """Return the seconds that the launcher takes for the same, its peak of resident memory in KiB, and the share of
    the seconds that the search for numbers takes.
    """
    finder = TimedFinder()
    start = time.monotonic()
    with shown_by(TextHandler(lambda text: print(text, file=sys.stderr))):
        passes, newest, most = asyncio.run(supervised(source, folder, finder))
    took = time.monotonic() - start
    wrote = (folder / "train.log").stat().st_size
    if passes[-1:] != [last_pass] or newest.pass_number != last_pass or wrote < source.stat().st_size:
        raise SystemExit(f"wrong result: last pass {passes[-1:]} of {last_pass}, {newest}, {wrote} bytes written")
    return took, most, finder.took / took


async def supervised(source: Path, folder: Path, finder: NumberFinder) -> tuple[list[int], Numbers, int]:
    """Return the passes and the newest numbers that were found, and the peak of resident memory in KiB."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
    died = asyncio.Event()
    passes: list[int] = []
    newest = Numbers()

    def heed(event: Event) -> None:
        nonlocal newest
        if isinstance(event, PassDone):
            passes.append(event.number)
        elif isinstance(event, NumbersSeen):
            newest = event.numbers
        elif isinstance(event, Died):
            died.set()

    supervisor = Supervisor(heed, tag="bench", find_numbers=lambda: finder)
    supervisor.set_log_folder(str(folder), "bench")
    argv = ("cat", str(source))
    supervisor.start(Process("trainer", argv, {"PATH": os.defpath}, "/", "train.log", pass_mark=b"Pass="))
    most = resident()
    while not died.is_set():
        await asyncio.wait([asyncio.ensure_future(died.wait())], timeout=0.02)
        most = max(most, resident())
    await supervisor.close(60)
    return passes, newest, most


def resident() -> int:
    """Return the resident memory of this process in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise SystemExit("no VmRSS in /proc/self/status")


def main() -> None:
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    become_subreaper()
    idle = resident()
    folder = Path(tempfile.mkdtemp())
    try:
        source = folder / "source"
        last_pass = make_output(source, mebibytes)
        cats, launchers, shares, most = [], [], [], 0
        for _ in range(ROUNDS):
            cats.append(by_cat(source, folder))
            took, peak, share = by_launcher(source, folder, last_pass)
            launchers.append(took)
            shares.append(share)
            most = max(most, peak)
            for name in ("cat.log", "train.log"):
                (folder / name).unlink()
    finally:
        shutil.rmtree(folder)
    cat, launcher = statistics.median(cats), statistics.median(launchers)
    print(f"log path: {mebibytes / launcher:.0f} MiB/s, worst {mebibytes / max(launchers):.0f} (median of {ROUNDS})")
    print(f"cat > file: {mebibytes / cat:.0f} MiB/s; the launcher takes {launcher / cat:.2f} times as long")
    print(f"search for numbers: {statistics.median(shares):.2%} of this time, worst {max(shares):.2%}")
    print(f"resident: {idle / 1024:.1f} MiB idle, at most {most / 1024:.1f} MiB while writing")


if __name__ == "__main__":
    main()
