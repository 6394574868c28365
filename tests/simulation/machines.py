"""Machines of the simulated world that run whole launchers: with signals, threads, a clock and a shared volume.

The launcher's code runs unchanged. What blocks (`run_in_thread`, threads) is done by the volume when that answers, in
simulated time and on a real folder, whose files have the times of the world.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import pytest

from launcher.base import aio
from tests.simulation import world
from tests.simulation.world import Computer, World

T = TypeVar("T")

_IN_MEMORY = "/dev/shm"
EPOCH = 1_800_000_000  # what every wall clock shows at the beginning


class Machines(World):
    """A world whose computers are machines that share a volume."""

    def __init__(self, delays: Sequence[float], volume: Volume) -> None:
        super().__init__(delays)
        self.volume = volume

    def machine(self, name: str, clock: float, disk: str) -> Machine:
        """`disk` is a folder that only this machine sees, and that always answers."""
        machine = Machine(self, name, clock, disk)
        self.computers[name] = machine
        return machine


class Machine(Computer):
    """The event loop of one launcher, with what else a launcher needs."""

    world: Machines

    def __init__(self, world: Machines, name: str, clock: float, disk: str) -> None:
        super().__init__(world, name, clock)
        self.disk = disk
        self.handlers: dict[int, Callable[[], object]] = {}
        self.threads: list[Callable[[], object]] = []  # that wait for the volume

    def monotonic(self) -> float:
        """What its clock shows, also while its launcher is frozen."""
        return self.world.now + self._clock

    def add_signal_handler(self, number: int, call: Callable[..., object], *args: object) -> None:
        self.handlers[number] = partial(call, *args)

    def remove_signal_handler(self, number: int) -> bool:
        return self.handlers.pop(number, None) is not None

    def call_soon_threadsafe(self, call: Callable[..., object], *args: object) -> object:
        return self.call_soon(call, *args)

    def start_thread(self, work: Callable[[], object]) -> None:
        self.threads.append(work)
        self.world.volume.ask(self, partial(self._run_thread, work), self.world.volume.lag)

    def end_threads(self) -> None:
        """Let all of them do what they are there for."""
        for work in list(self.threads):
            self._run_thread(work)

    def _run_thread(self, work: Callable[[], object]) -> None:
        if work in self.threads:
            self.threads.remove(work)
            work()


class Volume:
    """A folder that all machines see. `changed` is told the machine and the path of each file that is there anew."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.delay = 0.0
        self.lag = 0.0  # of what threads write by themselves
        self.is_full = False
        self.changed: Callable[[Machine, str], None] = lambda machine, path: None
        self._answers_from: dict[str, float] = {}

    def stall(self, machine: Machine, seconds: float) -> None:
        """Answer nothing that this machine asks for a while."""
        until = machine.world.now + seconds
        self._answers_from[machine.name] = max(until, self._answers_from.get(machine.name, 0.0))

    def ask(self, machine: Machine, work: Callable[[], object], lag: float = 0.0) -> None:
        """Do it when the volume answers."""
        now = machine.world.now
        machine.call_later(max(self._answers_from.get(machine.name, 0.0) - now, 0.0) + self.delay + lag, work)


def here() -> Machine:
    """The machine whose launcher runs just now."""
    return cast(Machine, asyncio.get_running_loop())


def _now_ns() -> int:
    return (EPOCH * 1000 + round(here().world.now * 1000)) * 1_000_000


def _run_in_thread(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    machine = here()
    result: asyncio.Future[T] = machine.create_future()

    def run() -> None:
        try:
            value = work(*args)
        except Exception as error:
            if not result.done():
                result.set_exception(error)
        else:
            if not result.done():
                result.set_result(value)

    if any(isinstance(arg, str) and arg.startswith(machine.disk) for arg in args):
        machine.call_soon(run)
    else:
        machine.world.volume.ask(machine, run)
    return result


# ---- the modules that the launcher's code finds in the place of Python's ---------------------------------------------


class _Time:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time(self) -> float:
        return EPOCH + here().world.now

    def gmtime(self, seconds: float | None = None) -> Any:
        return time.gmtime(self.time() if seconds is None else seconds)

    def strftime(self, form: str, when: Any = None) -> str:
        return time.strftime(form, self.gmtime() if when is None else when)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Os:
    """Files get the times of the world, nothing is synced, and the volume hears what is new."""

    def urandom(self, size: int) -> bytes:
        return b"\x80" if size == 1 else here().world.random.randbytes(size)  # one byte only makes a pause longer

    def utime(self, path: Any, times: Any = None, *, ns: Any = None) -> None:
        os.utime(path, ns=ns or (_now_ns(), _now_ns()))

    def fsync(self, descriptor: int) -> None:
        self.utime(descriptor)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and here().world.volume.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.open(path, flags, mode)

    def replace(self, source: str, path: str) -> None:
        os.replace(source, path)
        here().world.volume.changed(here(), path)

    def rename(self, source: str, path: str) -> None:
        os.rename(source, path)
        here().world.volume.changed(here(), path)

    def link(self, source: str, path: str) -> None:
        os.link(source, path)
        here().world.volume.changed(here(), path)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class _Secrets:
    def token_hex(self, size: int) -> str:
        return here().world.random.randbytes(size).hex()


class _Thread:
    def __init__(self, *, target: Callable[[], object], daemon: bool, name: str) -> None:
        self._target = target

    def start(self) -> None:
        here().start_thread(self._target)


class _Condition:
    """Nothing runs at the same time. Whoever waits lets all threads of its machine run."""

    def __enter__(self) -> _Condition:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], within: float) -> bool:
        here().end_threads()
        return condition()


class _Threading:
    Thread = _Thread
    Condition = _Condition

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


@contextmanager
def folder() -> Iterator[str]:
    """For one world: in memory, where there is such a place."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None) as made:
        yield made


def move_in(patch: pytest.MonkeyPatch) -> None:
    """From here on the launcher's code sees the time, the chance, the network and the volume of its machine."""
    world.move_in(patch)
    instead = {"time": _Time(), "os": _Os(), "secrets": _Secrets(), "threading": _Threading()}
    real = {"time": time, "os": os, "secrets": secrets, "threading": threading}
    for name, module in list(sys.modules.items()):
        if not name.startswith("launcher."):
            continue
        for known, simulated in instead.items():
            found = getattr(module, known, None)
            if found is real[known] or (found is not None and name.startswith("launcher.gang")):
                patch.setattr(module, known, simulated)
        if getattr(module, "run_in_thread", None) is aio.run_in_thread and module is not aio:
            patch.setattr(module, "run_in_thread", _run_in_thread)
    patch.setattr(aio, "run_in_thread", _run_in_thread)
