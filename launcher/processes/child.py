"""One process of the plan and everything in its process group: started, known dead at once, ended for certain."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launcher.base.aio import off_loop
from launcher.base.spawn import ended, spawn
from launcher.model import Process
from launcher.processes.proc import group_lives

KILL_WAIT = 1.0  # after SIGKILL: a healthy kernel needs milliseconds, one that waits for a stalled volume has no end

_NOT_FOUND = 127  # as a shell says it
_CANNOT_RUN = 126
_POLL = 0.01
_LOOK = 0.2  # between looks at a group that exists: zombies that nobody reaps keep it in being


@dataclass(frozen=True)
class Death:
    """The exit code as a shell shows it, and when it happened by the monotonic clock."""

    code: int
    at: float


class StartFailed(Exception):
    """The program could not be run; the code is the one that a shell would give."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Child:
    """Start it once; `end` and `kill` may come at any time after that, also while the program is still loading."""

    def __init__(self, process: Process, env: Mapping[str, str], forked: Callable[[int], None]) -> None:
        self.pid: int | None = None  # known from the fork on; the process group has the same number
        self._process = process
        self._env = env
        self._tell_forked = forked
        self._starting: asyncio.Future[subprocess.Popen[bytes]] | None = None
        self._death: asyncio.Task[Death] | None = None
        self._asked = False  # by a SIGTERM: many take a second one for more than they take the first
        self._killed_at: float | None = None
        self._next_look = 0.0
        self._gone = False  # its end was seen: the number may be somebody else's now, and is never signalled again

    async def start(self, output: int) -> None:
        """Run the program with its output going to this descriptor, which is closed here. Raises StartFailed."""
        self._starting = off_loop(self._spawn, output)
        try:
            popen = await self._starting
        except OSError as error:
            self._gone = True
            raise self._explain(error) from None
        self._death = asyncio.ensure_future(self._wait(popen))
        if self._killed_at is not None:
            self._signal(signal.SIGKILL)

    async def death(self) -> Death:
        """Wait for the death of the process itself; others of its group may live on."""
        assert self._death is not None
        return await asyncio.shield(self._death)

    @property
    def lives(self) -> bool:
        """Whether the process itself has started and not died."""
        return self._death is not None and not self._death.done()

    async def end(self, grace: float) -> bool:
        """SIGTERM to the group, SIGKILL at the end of the grace. False: something was left, held by the kernel."""
        deadline = time.monotonic() + grace
        while await self._lives():
            now = time.monotonic()
            if self._killed_at is not None and now >= self._killed_at + KILL_WAIT:
                return False
            if now >= deadline:
                self.kill()
            elif self._death is not None and not self._asked:
                self._asked = True
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)  # a stopped one hears the first only with the second
            await asyncio.sleep(_POLL)
        return True

    def kill(self) -> None:
        """SIGKILL to the group, now."""
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        self._signal(signal.SIGKILL)

    def _spawn(self, output: int) -> subprocess.Popen[bytes]:
        try:
            return spawn(
                self._process.argv,
                env=self._env,
                cwd=self._process.cwd,
                forked=self._forked,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        finally:
            os.close(output)

    def _forked(self, pid: int) -> None:
        self.pid = pid
        self._tell_forked(pid)

    async def _wait(self, popen: subprocess.Popen[bytes]) -> Death:
        code = await ended(popen)
        return Death(code, time.monotonic())

    def _signal(self, number: int) -> None:
        if self.pid is None or self._gone:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            self._signal_before_its_session(number)
        except PermissionError:
            pass  # all of the group run as somebody else by now: `end` reports that they live

    def _signal_before_its_session(self, number: int) -> None:
        """The group is not there: it has ended, or its first process has not come as far as to lead it."""
        assert self.pid is not None
        if self._death is not None:
            self._gone = self._death.done()
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    async def _lives(self) -> bool:
        """Whether the start is under way, or anybody of the group is more than a zombie."""
        if self._gone:
            return False
        if self._death is None:
            return self._starting is not None
        assert self.pid is not None
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            self._gone = self._death.done()
            return not self._gone
        except PermissionError:
            return True
        now = time.monotonic()
        if not self._death.done() or now < self._next_look:
            return True
        self._next_look = now + _LOOK
        return await off_loop(group_lives, self.pid)

    def _explain(self, error: OSError) -> StartFailed:
        role, program, cwd = self._process.role, self._process.argv[0], self._process.cwd
        reason = os.strerror(error.errno or errno.EINVAL)
        if error.filename == cwd and cwd != program:
            return StartFailed(_CANNOT_RUN, f"the {role} cannot start: its work directory {cwd}: {reason}")
        if isinstance(error, FileNotFoundError):
            where = "" if "/" in program else f" on the PATH {self._env.get('PATH', os.defpath)}"
            hint = " (or the interpreter that its first line names)" if "/" in program else ""
            return StartFailed(_NOT_FOUND, f"the {role} cannot start: there is no {program}{hint}{where}")
        return StartFailed(_CANNOT_RUN, f"the {role} cannot start: {program}: {reason}")
