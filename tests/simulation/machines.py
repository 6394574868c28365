"""Machines of the simulated world that run whole launchers: with signals, threads, a clock and a shared volume.

The launcher's code runs unchanged. Blocking work (`run_in_thread`, threads) is done when the simulated volume answers.
It is done on a real folder, whose files get the simulated time.
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
EPOCH = 1_800_000_000  # the time of all wall clocks at the beginning


class Machines(World):
    """A world whose computers are machines that share a volume."""

    def __init__(self, delays: Sequence[float], volume: Volume) -> None:
        super().__init__(delays)
        self.volume = volume

    def machine(self, name: str, clock: float, disk: str) -> Machine:
        """Add a machine. `disk` is its local folder, which always answers."""
        machine = Machine(self, name, clock, disk)
        self.computers[name] = machine
        return machine


class Machine(Computer):
    """The event loop of one launcher, with its local disk, signal handlers and threads."""

    world: Machines

    def __init__(self, world: Machines, name: str, clock: float, disk: str) -> None:
        super().__init__(world, name, clock)
        self.disk = disk
        self.handlers: dict[int, Callable[[], object]] = {}
        self.threads: list[Callable[[], object]] = []  # threads that wait for the volume

    def monotonic(self) -> float:
        """Return the time of its clock, which also runs while its launcher is frozen."""
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
        """Do the work of all waiting threads now."""
        for work in list(self.threads):
            self._run_thread(work)

    def _run_thread(self, work: Callable[[], object]) -> None:
        if work in self.threads:
            self.threads.remove(work)
            work()


class Volume:
    """A folder that all machines share. `changed` is called with the machine and the path of each written file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.delay = 0.0
        self.lag = 0.0  # additional seconds for the work of threads
        self.is_full = False
        self.changed: Callable[[Machine, str], None] = lambda machine, path: None
        self._answers_from: dict[str, float] = {}

    def stall(self, machine: Machine, seconds: float) -> None:
        """Do not answer this machine for a while."""
        until = machine.world.now + seconds
        self._answers_from[machine.name] = max(until, self._answers_from.get(machine.name, 0.0))

    def ask(self, machine: Machine, work: Callable[[], object], lag: float = 0.0) -> None:
        """Do the work when the volume answers this machine."""
        now = machine.world.now
        machine.call_later(max(self._answers_from.get(machine.name, 0.0) - now, 0.0) + self.delay + lag, work)


def here() -> Machine:
    """Return the machine whose launcher runs now."""
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


# ---- modules that replace Python's in the launcher's code ------------------------------------------------------------


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
    """The module os, except that files get the simulated time, nothing is synced, and the volume notes new files."""

    def urandom(self, size: int) -> bytes:
        return (
            b"\x80" if size == 1 else here().world.random.randbytes(size)
        )  # a single byte is used only to vary a pause

    def utime(self, path: Any, times: Any = None, *, ns: Any = None, **more: Any) -> None:
        os.utime(path, ns=ns or (_now_ns(), _now_ns()), **more)

    def fsync(self, descriptor: int) -> None:
        self.utime(descriptor)

    def listdir(self, path: str | int) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and here().world.volume.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.open(path, flags, mode, dir_fd=dir_fd)

    def replace(self, source: str, path: str, **folders: int | None) -> None:
        os.replace(source, path, **folders)
        self._note(path, **folders)

    def rename(self, source: str, path: str, **folders: int | None) -> None:
        os.rename(source, path, **folders)
        self._note(path, **folders)

    def link(self, source: str, path: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        os.link(source, path, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._note(path, dst_dir_fd=dst_dir_fd)

    def _note(self, path: str, *, dst_dir_fd: int | None = None, **_: int | None) -> None:
        folder = "" if dst_dir_fd is None else os.readlink(f"/proc/self/fd/{dst_dir_fd}")
        here().world.volume.changed(here(), os.path.join(folder, path))

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
    """A condition in a world without parallel threads. `wait_for` runs all threads of the machine."""

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
    """Yield a temporary folder for one world, in memory if possible."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None) as made:
        yield made


def move_in(patch: pytest.MonkeyPatch) -> None:
    """Replace time, random numbers, network and file access in the launcher's code by those of its machine."""
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
    patch.setattr(aio.Workers, "run", lambda _, work, *args: _run_in_thread(work, *args))
    patch.setattr(aio.Workers, "put", lambda _, job: here().start_thread(job))
