"""Measure the time, the CPU time and the memory of gangs of different sizes: `python bench/gang.py`.

All members except the hub are in this process and use the launcher's own code over loopback. The hub is in another
process, so that its CPU time and memory are measured alone. The parts of a gang's life are:

join      until all members have the roster
begin     until all members train
restart   from the death of a trainer until all members train again, without the pause before the restart
survey    from `paddle-launcher why` until all members have answered where their processes are
check     each member checks whether it can reach the next one: here all check the hub, whose costs are shown
finish    until all members have received the message that the job is complete
fail      in a second gang of each size: until all members have received the message that the job failed

Members in one process parse the roster once. In pods, each member parses it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

REPOSITORY = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, REPOSITORY)

from launcher.gang import Collect, Event, Finish, Gang, GangSettings, Restart, Stop, Train, Verdict  # noqa: E402
from launcher.gang.connection import Connection  # noqa: E402
from launcher.gang.dialler import Dialler, Inbox  # noqa: E402
from launcher.model import Cause, CauseKind, Member, MemberReport, ProcessState, Start  # noqa: E402

SIZES = (10, 100, 1000)
SECRET = b"a secret of the benchmark"
FOR_GOOD = 1  # an exit code after which the job is not restarted
PARTS = ("join", "begin", "restart", "survey", "check", "finish")
WAITS = ProcessState("trainer", "all_reduce, train.py:57", "wait, paddle/distributed/group.py:123", 41.0)
COLUMNS = ("members", "part", "ms", "ms/N", "hub CPU ms", "/N", "messages/N", "hub peak MiB")


class BenchMember:
    """The gang of one launcher, and how often each event came."""

    def __init__(self, rank: int, size: int) -> None:
        address = f"10.{rank >> 16}.{rank >> 8 & 255}.{rank & 255}"
        uid = f"6f1c{rank:04x}-7f0e-4f4f-9d1c-0a1b2c3d{rank:04x}"
        self.me = Member(f"training-job-{rank}-x{rank:04x}", uid, address, address, rank)
        self._received: dict[type[Event], int] = {}
        self._heard = asyncio.Event()
        self.gang = Gang(
            GangSettings(size=size, port=0, listen=("127.0.0.1",), reach_within=60, verdict_within=60),
            self._on_event,
            complete=_nothing,
            judge=lambda cause: (cause, Verdict.STOP if cause.code == FOR_GOOD else Verdict.RESTART),
            prepare=_at_once,
        )

    def _on_event(self, event: Event) -> None:
        self._received[type(event)] = self._received.get(type(event), 0) + 1
        self._heard.set()
        if isinstance(event, Restart):
            self.gang.report_ended(event.attempt)
        if isinstance(event, Collect):
            self.gang.report_collected(event.survey, MemberReport("training", 3, (WAITS,)))

    async def hears(self, kind: type[Event], times: int = 1) -> None:
        while self._received.get(kind, 0) < times:
            self._heard.clear()
            await self._heard.wait()

    async def join(self, hub: tuple[str, int] | None) -> None:
        await self.gang.join(self.me, hub, job="job", secret=SECRET)

    async def begin(self) -> None:
        self.gang.report_staged()
        self.gang.report_serving()
        await self.hears(Train)

    async def restart(self) -> None:
        await self.hears(Restart)
        self.gang.report_serving(1)
        await self.hears(Train, 2)

    async def finish(self) -> None:
        self.gang.report_trained(1)
        await self.hears(Finish)

    async def survey(self) -> None:
        """On the hub, ask all members. A member waits until it is asked."""
        reports = await self.gang.survey(60)
        if reports is None:
            await self.hears(Collect)
        elif len(reports) < self.gang._settings.size:
            raise RuntimeError(f"only {len(reports)} members have answered")

    async def check(self) -> None:
        """Do nothing: only the other members check."""

    async def fail(self) -> None:
        await self.hears(Stop)

    def dies(self, attempt: int, code: int) -> None:
        rank = self.me.rank or 0
        self.gang.report_failed(Cause(CauseKind.TRAINER, rank, self.me.pod, "it died", code), time.monotonic(), attempt)


async def check(place: tuple[str, int]) -> None:
    """Do what a member does to check its neighbour."""
    dialler = Dialler(place, None)
    await dialler.open(Inbox(), SECRET, 60, 60)
    dialler.abort("the check is done")


async def _nothing() -> None:
    pass


async def _at_once(cause: Cause | None) -> Start:
    return Start(0 if cause is None else 1, None)


class Counter:
    """Count the lines that the connections of this process send and receive."""

    def __init__(self) -> None:
        self.messages = 0
        for name in ("send", "_line"):
            setattr(Connection, name, self._counted(getattr(Connection, name)))

    def _counted(self, method: Callable[..., None]) -> Callable[..., None]:
        def counted(connection: Connection, *line: bytes, **known: bytes) -> None:
            self.messages += 1
            method(connection, *line, **known)

        return counted


async def lead(size: int) -> None:
    """Run the hub's process. Print its port, and after each part that is read from standard input, the costs so far."""
    counter = Counter()
    hub = BenchMember(0, size)
    await hub.gang.listen()
    print(json.dumps(hub.gang.port), flush=True)
    before = time.process_time()
    parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "join": lambda: hub.join(None),
        **{name: getattr(hub, name) for name in ("begin", "restart", "survey", "check", "finish", "fail")},
    }
    while part := (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip():
        await parts[part]()
        print(json.dumps([time.process_time() - before, counter.messages, peak_memory()]), flush=True)
    await hub.gang.close()


def peak_memory() -> float:
    """Return the peak of this process's memory in MiB. After vfork, getrusage would include the parent's memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def follow(size: int, parts: tuple[str, ...], hub: subprocess.Popen[str]) -> list[tuple[str, float, list[float]]]:
    """Run all other members. Return for each part its name, the seconds, and the hub's costs so far."""
    assert hub.stdout is not None
    assert hub.stdin is not None
    place = ("127.0.0.1", json.loads(hub.stdout.readline()))
    members = [BenchMember(rank, size) for rank in range(1, size)]
    gc.collect()
    measured = []
    for part in parts:
        if part != "check":
            print(part, file=hub.stdin, flush=True)
        started = time.monotonic()
        if part == "check":
            await asyncio.gather(*(check(place) for _ in members))
        if part == "restart":
            members[-1].dies(0, 137)
        if part == "fail":
            members[-1].dies(1, FOR_GOOD)
        await asyncio.gather(*(one.join(place) if part == "join" else getattr(one, part)() for one in members))
        seconds = time.monotonic() - started
        if part == "check":
            print(part, file=hub.stdin, flush=True)  # the hub's costs so far
        measured.append((part, seconds, json.loads(await asyncio.to_thread(hub.stdout.readline))))
    hub.stdin.close()
    await asyncio.gather(*(one.gang.close() for one in members))
    return measured


def measure(size: int, parts: tuple[str, ...]) -> list[list[str]]:
    """Return one row per part. Costs that should grow with N are also divided by N."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, __file__, str(size)], stdin=pipe, stdout=pipe, text=True) as hub:
        measured = asyncio.run(follow(size, parts, hub))
    rows, cpu_before, messages_before = [], 0.0, 0.0
    for part, seconds, (cpu, messages, peak) in measured:
        own = 1000 * (cpu - cpu_before)
        said = messages - messages_before
        values = (f"{1000 * seconds:.0f}", f"{1000 * seconds / size:.2f}", f"{own:.0f}", f"{own / size:.2f}")
        rows.append([str(size), part, *values, f"{said / size:.2f}", f"{peak:.0f}"])
        cpu_before, messages_before = cpu, messages
    return rows


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if len(sys.argv) > 1:
        asyncio.run(lead(int(sys.argv[1])))
        return
    print("  ".join(COLUMNS))
    for size in SIZES:
        for row in [*measure(size, PARTS), measure(size, ("join", "begin", "restart", "fail"))[-1]]:
            print("  ".join(value.rjust(len(title)) for value, title in zip(row, COLUMNS, strict=True)), flush=True)


if __name__ == "__main__":
    main()
