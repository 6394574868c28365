"""End the children if the launcher is killed.

A launcher that is process 1 needs no guardian: when process 1 dies, the kernel kills all processes of the container.

The guardian is an early fork that shares the launcher's memory, has its own session, and reads lines from a pipe:
`+<group>` when a process group was started, `-<group>` when it has ended, `bye` when the launcher ends normally.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from collections.abc import Callable

from launcher.base.spawn import register_fork
from launcher.processes.proc import find_tagged, read_entry

# Seconds between checks whether the launcher is alive. After its death, a thread that is blocked on a stalled volume
# keeps the pipe open.
_POLL = 1.0
_SWEEP = 5.0  # seconds in which tagged processes are killed again and again: one blocked on a volume cannot die at once


class Guardian:
    """A process that kills the children if the launcher dies. Create it before the first thread and the event loop."""

    def __init__(self, tag: str) -> None:
        launcher = os.getpid()
        reading, self._pipe = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _guard(reading, launcher, tag)
            finally:
                os._exit(0)
        os.close(reading)
        os.set_blocking(self._pipe, False)
        register_fork(self.pid)

    def watch(self, group: int) -> None:
        """Make the guardian kill this process group if the launcher dies."""
        self._send(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """Make the guardian forget a process group that has ended: a new group may get the same number."""
        self._send(b"-%d\n" % group)

    def dismiss(self) -> None:
        """End the guardian process without killing anything: the launcher is about to end normally."""
        self._send(b"bye\n")
        os.close(self._pipe)

    def _send(self, line: bytes) -> None:
        try:
            os.write(self._pipe, line)
        except OSError:
            pass  # the guardian was killed or stopped: the launcher continues without it


def _guard(pipe: int, launcher: int, tag: str) -> None:
    gc.disable()  # a collection would write to, and so copy, memory shared with the launcher
    pipe = _detach_from_launcher(pipe)
    groups: set[int] = set()
    if _ended_normally(pipe, launcher, groups):
        return
    for group in groups:
        _kill(os.killpg, group)
        _kill(os.kill, group)  # the child may not have created its group yet
    deadline = time.monotonic() + _SWEEP
    while (pids := find_tagged(tag)) and time.monotonic() < deadline:
        for pid in pids:
            _kill(os.kill, pid)
        time.sleep(0.01)


def _detach_from_launcher(pipe: int) -> int:
    """Leave the launcher's session and folder, and close all its files except the pipe. Return the pipe's number."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    pipe = os.dup2(pipe, max(pipe, null, 2) + 1)  # higher than the descriptors that are replaced below
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.dup2(pipe, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    with open("/proc/self/comm", "wb", buffering=0) as name:
        name.write(b"pl-guardian")
    return 3


def _ended_normally(pipe: int, launcher: int, groups: set[int]) -> bool:
    """Wait until the launcher ends, and keep `groups` up to date. Return whether the launcher ended normally."""
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    rest = b""
    while True:
        if poller.poll(_POLL * 1000):
            data = os.read(pipe, 65536)
            if not data:
                return False
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line == b"bye":
                    return True
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        elif _has_died(launcher):
            return False


def _has_died(launcher: int) -> bool:
    entry = read_entry(launcher)
    return os.getppid() != launcher or entry is None or entry.is_dead


def _kill(send: Callable[[int, int], None], number: int) -> None:
    try:
        send(number, signal.SIGKILL)
    except OSError:
        pass  # the process has ended, or belongs to another user
