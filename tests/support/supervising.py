"""Helpers for tests with child processes: an event loop like the launcher's, waiting, and volumes that stall."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from launcher.base.spawn import reap_orphans
from launcher.model import Process

T = TypeVar("T")

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_CHILD_SUBREAPER = 36
_FORCE = 1
_DETACH = 2

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and namespaces need root")


def run(test: Coroutine[Any, Any, T], seconds: float = 20) -> T:
    """Run on an event loop like the launcher's: this process inherits orphans, and reaps them on SIGCHLD."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
        try:
            return await asyncio.wait_for(test, seconds)
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)  # before asyncio.run closes the pipe of the handler

    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        return asyncio.run(main())
    finally:
        _LIBC.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)  # orphans of other tests must not be reaped here


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait for a condition while the event loop runs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        await asyncio.sleep(0.01)


def eventually(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait for a condition without an event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def shell(script: str, **options: Any) -> Process:
    """Return a process of a plan that runs a shell script."""
    return program("/bin/sh", "-c", script, **options)


def python(script: str, *arguments: str, **options: Any) -> Process:
    """Return a process of a plan that runs a Python script."""
    return program(sys.executable, "-c", script, *arguments, **options)


def program(*argv: str, **options: Any) -> Process:
    """Return a process of a plan, by default a trainer."""
    options = {"role": "trainer", "env": {"PATH": os.defpath}, "cwd": "/", "log": "train.log", **options}
    return Process(argv=argv, **options)


def free_port() -> int:
    """Return an unused TCP port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def silent_volume(folder: Path) -> Iterator[Path]:
    """Mount a file system that never answers, like a network volume without its server. SIGKILL ends the waits."""
    folder.mkdir()
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
    if _LIBC.mount(b"none", bytes(folder), b"fuse", 0, options) != 0:
        os.close(fuse)
        pytest.skip("FUSE cannot be mounted here")
    try:
        yield folder
    finally:
        _LIBC.umount2(bytes(folder), _FORCE | _DETACH)  # waiting processes get an error
        os.close(fuse)


@contextlib.contextmanager
def small_volume(folder: Path, size: str) -> Iterator[Path]:
    """Mount a small file system in memory."""
    folder.mkdir()
    if _LIBC.mount(b"none", bytes(folder), b"tmpfs", 0, f"size={size}".encode()) != 0:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        _LIBC.umount2(bytes(folder), _DETACH)


def grow(volume: Path, size: str) -> None:
    """Make a small volume larger."""
    subprocess.run(["mount", "-o", f"remount,size={size}", volume], check=True)


class Freezer:
    """A volume that fsfreeze can stall: writers are blocked in the kernel, and even SIGKILL does not end them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "--freeze", self.folder], check=True)

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "--unfreeze", self.folder], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def freezing_volume(folder: Path) -> Iterator[Freezer]:
    """Mount a volume from a file. It is always thawed at the end."""
    folder.mkdir()
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(8 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], check=False).returncode != 0:
        pytest.skip("loop devices cannot be mounted here")
    freezer = Freezer(folder)
    try:
        yield freezer
    finally:
        freezer.thaw()
        eventually(lambda: subprocess.run(["umount", folder], capture_output=True, check=False).returncode == 0)
