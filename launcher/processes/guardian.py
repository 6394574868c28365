"""Ends what a launcher started when the launcher itself is killed. Process 1 needs none: the kernel does it there.

It is a fork made early, which shares the launcher's memory, lives in a session of its own and reads a pipe: lines
`+<group>` and `-<group>` for process groups that came and went, `bye` when the launcher ends in order.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from collections.abc import Callable

from launcher.base.spawn import adopt
from launcher.processes.proc import read_entry, tagged

_LOOK = 1.0  # seconds between looks at the launcher: a thread on a stalled volume keeps a dead launcher's pipe open
_SWEEP = 5.0  # seconds for which killed processes are looked for again: what hangs on a volume dies when that lets go


class Guardian:
    """The launcher's end of the pipe. Make it before there are threads or a loop."""

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
        adopt(self.pid)

    def watch(self, group: int) -> None:
        """Kill this process group, too, when the launcher dies."""
        self._tell(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """This process group has ended; its number may be somebody else's next."""
        self._tell(b"-%d\n" % group)

    def goodbye(self) -> None:
        """The launcher ends in order: the guardian ends now and kills nobody."""
        self._tell(b"bye\n")
        os.close(self._pipe)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._pipe, line)
        except OSError:
            pass  # it was killed or stopped: the launcher must go on without it


def _guard(pipe: int, launcher: int, tag: str) -> None:
    gc.disable()  # a collection would touch, and so copy, the memory shared with the launcher
    pipe = _leave_everything(pipe)
    groups: set[int] = set()
    if _launcher_left_in_order(pipe, launcher, groups):
        return
    for group in groups:
        _kill(os.killpg, group)
        _kill(os.kill, group)  # it may not have got as far as to lead a group
    deadline = time.monotonic() + _SWEEP
    while (pids := tagged(tag)) and time.monotonic() < deadline:
        for pid in pids:
            _kill(os.kill, pid)
        time.sleep(0.01)


def _leave_everything(pipe: int) -> int:
    """Hold nothing of the launcher's but the pipe: no session, folder, output or socket. Gives the pipe's number."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    pipe = os.dup2(pipe, max(pipe, null, 2) + 1)  # clear of the numbers that follow
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.dup2(pipe, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    with open("/proc/self/comm", "wb", buffering=0) as name:
        name.write(b"pl-guardian")
    return 3


def _launcher_left_in_order(pipe: int, launcher: int, groups: set[int]) -> bool:
    """Keep the books until the launcher says goodbye (True) or has died."""
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    rest = b""
    while True:
        if poller.poll(_LOOK * 1000):
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
    return os.getppid() != launcher or entry is None or entry.dead


def _kill(how: Callable[[int, int], None], whom: int) -> None:
    try:
        how(whom, signal.SIGKILL)
    except OSError:
        pass  # gone already, or another user's
