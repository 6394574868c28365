"""What a gang costs as it grows: `python bench/gang.py`.

All members but the hub live in this process and use the launcher's own code over loopback; the hub has a process of its
own, so that its CPU time and its memory are its own. Measured twice a size: until everybody has the roster, and from
there through both barriers to finish. Members of one process parse the roster once; in pods each does it for itself.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, REPOSITORY)

from launcher.gang import Begin, Event, Finish, Gang, Lead, Next, Settings, Train  # noqa: E402
from launcher.gang.connection import Connection  # noqa: E402
from launcher.model import FIRST, Cause, Member, Start  # noqa: E402

SIZES = (10, 100, 1000)
SECRET = b"a secret of the benchmark"


def gang(rank: int, size: int) -> tuple[Gang, Member, asyncio.Event, asyncio.Event]:
    """A gang as a launcher has it, and what becomes set on train and on finish."""
    trains, finishes = asyncio.Event(), asyncio.Event()

    def tell(event: Event) -> None:
        if isinstance(event, Train):
            trains.set()
        elif isinstance(event, Finish):
            finishes.set()
        elif not isinstance(event, Begin | Lead):
            raise SystemExit(f"the gang failed: {event}")

    config = Settings(size=size, port=0, listen=("127.0.0.1",), reach_within=60)
    address = f"10.{rank >> 16}.{rank >> 8 & 255}.{rank & 255}"
    uid = f"6f1c{rank:04x}-7f0e-4f4f-9d1c-0a1b2c3d{rank:04x}"
    me = Member(f"training-job-{rank}-x{rank:04x}", uid, address, address, rank)
    quiet = Gang(config, tell, lambda line: None, complete=_nothing, judge=_as_it_is, prepare=_at_once)
    return quiet, me, trains, finishes


async def _nothing() -> None:
    pass


def _as_it_is(cause: Cause) -> tuple[Cause, Next]:
    return cause, Next.STOP


async def _at_once(cause: Cause | None) -> Start:
    return FIRST


class Counter:
    """Counts the lines that go through the connections of this process."""

    def __init__(self) -> None:
        self.messages = 0
        for name in ("send", "_line"):
            setattr(Connection, name, self._counted(getattr(Connection, name)))

    def _counted(self, method: Callable[[Connection, bytes], None]) -> Callable[[Connection, bytes], None]:
        def counted(connection: Connection, line: bytes) -> None:
            self.messages += 1
            method(connection, line)

        return counted


async def lead(size: int) -> None:
    """The hub's process: says its port, then what each half has cost."""
    counter = Counter()
    hub, me, trains, finishes = gang(0, size)
    await hub.listen()
    print(json.dumps(hub.port), flush=True)
    before = time.process_time()

    def told() -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps([time.process_time() - before, counter.messages, peak / 1024]), flush=True)

    await hub.join(me, None, job="job", secret=SECRET)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    told()
    hub.staged()
    hub.serving()
    await trains.wait()
    hub.trained()
    await finishes.wait()
    told()
    await hub.close()


async def follow(size: int, port: int, said: Any, go_on: Any) -> tuple[float, float, list[float], list[float]]:
    """All other members. Seconds and the hub's costs for joining and for the rest."""
    members = [gang(rank, size) for rank in range(1, size)]
    gc.collect()
    started = time.monotonic()
    joins = (one.join(me, ("127.0.0.1", port), job="job", secret=SECRET) for one, me, _, _ in members)
    await asyncio.gather(*joins)
    joined = time.monotonic()
    print("", file=go_on, flush=True)
    cost_of_joining = json.loads(await asyncio.to_thread(said.readline))
    ready = time.monotonic()
    for one, _, _, _ in members:
        one.staged()
        one.serving()
    await asyncio.gather(*(trains.wait() for _, _, trains, _ in members))
    for one, _, _, _ in members:
        one.trained()
    await asyncio.gather(*(finishes.wait() for _, _, _, finishes in members))
    finished = time.monotonic()
    cost_of_all = json.loads(await asyncio.to_thread(said.readline))
    await asyncio.gather(*(one.close() for one, _, _, _ in members))
    return joined - started, finished - ready, cost_of_joining, cost_of_all


def measure(size: int) -> list[str]:
    """A row of the table, per member where it should be in proportion to N."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, __file__, str(size)], stdin=pipe, stdout=pipe, text=True) as hub:
        assert hub.stdout is not None
        port = json.loads(hub.stdout.readline())
        joining, rest, (cpu, messages, _), (all_cpu, all_messages, peak) = asyncio.run(
            follow(size, port, hub.stdout, hub.stdin)
        )
    values = [
        f"{joining * 1000:.0f}",
        f"{joining * 1000 / size:.2f}",
        f"{cpu * 1000:.0f}",
        f"{cpu * 1000 / size:.2f}",
        f"{messages:.0f}",
        f"{messages / size:.2f}",
        f"{rest * 1000:.0f}",
        f"{(all_cpu - cpu) * 1000:.0f}",
        f"{(all_cpu - cpu) * 1000 / size:.2f}",
        f"{(all_messages - messages) / size:.2f}",
        f"{peak:.0f}",
    ]
    return [str(size), *values]


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if len(sys.argv) > 1:
        asyncio.run(lead(int(sys.argv[1])))
        return
    head = ["members", "welcomed ms", "/N", "hub CPU ms", "/N", "messages", "/N"]
    head += ["to finish ms", "hub CPU ms", "/N", "messages/N", "hub peak MiB"]
    print("  ".join(head))
    for size in SIZES:
        print("  ".join(value.rjust(len(title)) for value, title in zip(measure(size), head, strict=True)), flush=True)


if __name__ == "__main__":
    main()
