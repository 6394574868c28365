"""Measure how fast the launcher writes a process's output to a log file, compared with `cat > file`, and its memory.

Also measure which share of this time the search for numbers (loss, speed) takes. Then measure a process that floods
standard output and standard error, each with half of the output, if both are copied to the launcher's own streams, too.

Run: python -m bench.log_path [MEBIBYTES]. It writes to a temporary folder (TMPDIR), which should not be in memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

from launcher.base.log import TextHandler, shown_by
from launcher.base.spawn import become_subreaper, reap_orphans
from launcher.model import Numbers, Process
from launcher.paddle import NumberFinder
from launcher.processes.supervisor import Died, Event, NumbersSeen, PassDone, Supervisor

ROUNDS = 5
T = TypeVar("T")
MEBIBYTE = 1024 * 1024
BATCH = (
    b"I1116 09:10:17.0 50 TrainerInternal.cpp:165]  Batch=20 samples=1000 AvgCost=0.61 CurrentCost=0.58 Eval: e=0.3\n"
)
PASS = b"I1116 09:10:18.0 50 TrainerInternal.cpp:182]  Pass=%d Batch=60 samples=3000 AvgCost=0.55 Eval: e=0.3\n"


def make_output(path: Path, mebibytes: int) -> int:
    """Write a log of about this size, with one pass per MiB. Return the number of the last pass.

    It is written in small parts, so that it adds nothing to the memory that is measured.
    """
    part = BATCH * 64
    with path.open("wb") as file:
        for number in range(mebibytes):
            for _ in range(MEBIBYTE // len(part)):
                file.write(part)
            file.write(PASS % number)
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
    passes, newest, most = run(supervised(trainer("cat", str(source)), folder, finder))
    took = time.monotonic() - start
    wrote = (folder / "train.log").stat().st_size
    if passes[-1:] != [last_pass] or newest.pass_number != last_pass or wrote < source.stat().st_size:
        raise SystemExit(f"wrong result: last pass {passes[-1:]} of {last_pass}, {newest}, {wrote} bytes written")
    return took, most, finder.took / took


def both_streams(source: Path, folder: Path, last_pass: int, streams: tuple[int, int]) -> tuple[float, int]:
    """Return the seconds for a process that writes the source to both streams at once, and the peak of memory in KiB.

    streams: where the launcher copies the output
    """
    flood = f"cat {shlex.quote(str(source))} & cat {shlex.quote(str(source))} >&2; wait"
    start = time.monotonic()
    passes, _, most = run(supervised(trainer("sh", "-c", flood, echo=True), folder, NumberFinder(), streams))
    took = time.monotonic() - start
    wrote = (folder / "train.log").stat().st_size
    if passes[-1:] != [last_pass] or wrote < 2 * source.stat().st_size:
        raise SystemExit(f"wrong result: last pass {passes[-1:]} of {last_pass}, {wrote} bytes written")
    return took, most


def in_child(measure: str, *arguments: object, streams: Sequence[int] = ()) -> list[float]:
    """Return the figures of a round in a new process: a launcher has no memory left from earlier rounds, either.

    streams: further descriptors for the process, whose numbers are its last arguments
    """
    command = [sys.executable, "-m", "bench.log_path", measure, *map(str, [*arguments, *streams])]
    done = subprocess.run(command, stdout=subprocess.PIPE, pass_fds=streams, check=True)
    result: list[float] = json.loads(done.stdout)
    return result


def pipe(path: Path) -> int:
    """Return the writing end of a pipe whose bytes a process of another parent reads and drops, as in a container."""
    os.mkfifo(path)
    subprocess.run(["sh", "-c", f"cat {shlex.quote(str(path))} >/dev/null 2>&1 &"], check=True)
    return os.open(path, os.O_WRONLY)


def trainer(*argv: str, echo: bool = False) -> Process:
    return Process("trainer", argv, {"PATH": os.defpath}, "/", "train.log", echo, pass_mark=b"Pass=")


def run(work: Coroutine[None, None, T]) -> T:
    with shown_by(TextHandler(lambda text: print(text, file=sys.stderr))):
        return asyncio.run(work)


async def supervised(
    process: Process, folder: Path, finder: NumberFinder, streams: tuple[int, int] = (1, 2)
) -> tuple[list[int], Numbers, int]:
    """Return the passes and the newest numbers that were found, and the peak of resident memory in KiB.

    streams: where the output of the process is copied
    """
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

    supervisor = Supervisor(heed, tag="bench", find_numbers=lambda: finder, stdout=streams[0], stderr=streams[1])
    supervisor.set_log_folder(str(folder), "bench")
    supervisor.start(process)
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


def one_round(measure: str, source: str, folder: str, last_pass: str, *streams: str) -> None:
    """Run one round of this process, and print its figures."""
    become_subreaper()
    if measure == "one":
        print(json.dumps(by_launcher(Path(source), Path(folder), int(last_pass))))
    else:
        print(json.dumps(both_streams(Path(source), Path(folder), int(last_pass), (int(streams[0]), int(streams[1])))))


def main() -> None:
    if len(sys.argv) > 2:
        one_round(*sys.argv[1:])
        return
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    folder = Path(tempfile.mkdtemp())
    try:
        streams = pipe(folder / "stdout"), pipe(folder / "stderr")
        idle = resident()
        source = folder / "source"
        last_pass = make_output(source, mebibytes)
        half = folder / "half"
        last_half = make_output(half, mebibytes // 2)
        cats, launchers, shares, most = [], [], [], 0.0
        floods, most_of_both = [], 0.0
        for _ in range(ROUNDS):
            cats.append(by_cat(source, folder))
            took, peak, share = in_child("one", source, folder, last_pass)
            launchers.append(took)
            shares.append(share)
            most = max(most, peak)
            (folder / "train.log").unlink()
            took, peak = in_child("both", half, folder, last_half, streams=streams)
            floods.append(took)
            most_of_both = max(most_of_both, peak)
            for name in ("cat.log", "train.log"):
                (folder / name).unlink()
    finally:
        shutil.rmtree(folder)
    cat, launcher = statistics.median(cats), statistics.median(launchers)
    print(f"log path: {mebibytes / launcher:.0f} MiB/s, worst {mebibytes / max(launchers):.0f} (median of {ROUNDS})")
    print(f"cat > file: {mebibytes / cat:.0f} MiB/s; the launcher takes {launcher / cat:.2f} times as long")
    print(f"search for numbers: {statistics.median(shares):.2%} of this time, worst {max(shares):.2%}")
    print(f"both streams, also copied: {mebibytes / statistics.median(floods):.0f} MiB/s (median of {ROUNDS})")
    peaks = f"at most {most / 1024:.1f} MiB while writing, {most_of_both / 1024:.1f} MiB for both streams"
    print(f"resident: {idle / 1024:.1f} MiB idle, {peaks}")


if __name__ == "__main__":
    main()
