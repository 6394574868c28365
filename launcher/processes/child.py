"""Start and end one process of the plan, with its whole process group."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launcher.base import shortage
from launcher.base.aio import run_in_thread
from launcher.base.spawn import spawn, wait_for_exit
from launcher.errors import CANNOT_RUN, NOT_FOUND, Failure
from launcher.model import Process
from launcher.processes.proc import group_is_alive

KILL_WAIT = 1.0  # seconds to wait after SIGKILL; a process that is blocked on a stalled volume may never end

_POLL = 0.01
_GROUP_POLL = 0.2  # seconds between searches for live processes of a group: it may consist of zombies only


@dataclass(frozen=True)
class Death:
    """The death of a process at the monotonic time `at`. `code` is its exit code, or 128 + n after signal n."""

    code: int
    at: float


class StartFailed(Exception):
    """The program could not be run. `code` is the exit code that a shell would return."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Child:
    """One child process.

    The caller calls `start` once. After that it may call `end` and `kill` at any time, even during a slow start.
    """

    def __init__(self, process: Process, env: Mapping[str, str], on_fork: Callable[[int], None]) -> None:
        self.pid: int | None = None  # set at the fork; the process group has the same number
        self._process = process
        self._env = env
        self._on_fork = on_fork
        self._starting: asyncio.Future[subprocess.Popen[bytes]] | None = None
        self._death: asyncio.Task[Death] | None = None
        self._sigterm_sent = False  # send SIGTERM once: on the second one many programs end without cleaning up
        self._killed_at: float | None = None
        self._next_group_poll = 0.0
        self._group_ended = False  # if true, send no more signals: a new group may have the same number

    async def start(self, stdout: int, stderr: int) -> None:
        """Run the program with its output to these two descriptors, and close them. Raises StartFailed.

        Both may be the same descriptor.
        """
        self._starting = run_in_thread(self._spawn, stdout, stderr)
        try:
            popen = await self._starting
        except Failure as failure:  # there was no thread for `_spawn`
            _close(stdout, stderr)
            self._group_ended = True
            raise StartFailed(CANNOT_RUN, f"the {self._process.role} cannot start: {failure.message}") from None
        except StartFailed:
            self._group_ended = True
            raise
        except Exception:  # for example MemoryError: without a pid, there is no process to end
            self._group_ended = self.pid is None
            raise
        self._death = asyncio.ensure_future(self._wait(popen))
        if self._killed_at is not None:
            self._signal(signal.SIGKILL)

    async def death(self) -> Death:
        """Wait until the process itself is dead. Other processes of its group may still be alive."""
        assert self._death is not None
        return await asyncio.shield(self._death)

    @property
    def is_alive(self) -> bool:
        """Whether the process itself has started and not died."""
        return self._death is not None and not self._death.done()

    async def end(self, grace: float) -> bool:
        """Send SIGTERM to the group, and SIGKILL after `grace` seconds.

        Return False if a process is still alive after SIGKILL. That process is blocked in the kernel, for example on a
        stalled volume, or belongs to another user.
        """
        deadline = time.monotonic() + grace
        while await self._group_is_alive():
            now = time.monotonic()
            if self._killed_at is not None and now >= self._killed_at + KILL_WAIT:
                return False
            if now >= deadline:
                self.kill()
            elif self._death is not None and not self._sigterm_sent:
                self._sigterm_sent = True
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)  # a stopped process gets SIGTERM only after SIGCONT
            await asyncio.sleep(_POLL)
        return True

    def kill(self) -> None:
        """Send SIGKILL to the group now."""
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        self._signal(signal.SIGKILL)

    def _spawn(self, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        try:
            return spawn(
                self._process.argv,
                env=self._env,
                cwd=self._process.cwd,
                forked=self._note_fork,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        except OSError as error:
            raise self._explain(error) from None  # now, since the limit may no longer be used up in a moment
        finally:
            _close(stdout, stderr)

    def _note_fork(self, pid: int) -> None:
        self.pid = pid
        self._on_fork(pid)

    async def _wait(self, popen: subprocess.Popen[bytes]) -> Death:
        code = await wait_for_exit(popen)
        return Death(code, time.monotonic())

    def _signal(self, number: int) -> None:
        if self.pid is None or self._group_ended:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            self._signal_process(number)
        except PermissionError:
            pass  # all processes of the group have changed their user: `end` returns False

    def _signal_process(self, number: int) -> None:
        """Signal the process if it has not created its group yet. Otherwise record whether the group has ended."""
        assert self.pid is not None
        if self._death is not None:
            self._group_ended = self._death.done()
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    async def _group_is_alive(self) -> bool:
        """Return whether the program is being started, or the group has a process that is not a zombie."""
        if self._group_ended:
            return False
        if self._death is None:
            return self._starting is not None
        assert self.pid is not None
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            self._group_ended = self._death.done()
            return not self._group_ended
        except PermissionError:
            return True
        now = time.monotonic()
        if not self._death.done() or now < self._next_group_poll:
            return True
        self._next_group_poll = now + _GROUP_POLL
        try:
            return await run_in_thread(group_is_alive, self.pid)
        except (Failure, OSError):
            return True  # without a thread or a file descriptor, the group counts as alive

    def _explain(self, error: OSError) -> StartFailed:
        role, program, cwd = self._process.role, self._process.argv[0], self._process.cwd
        if why := shortage.explain(error, starting=True):
            return StartFailed(CANNOT_RUN, f"the {role} cannot start: {why}")
        reason = os.strerror(error.errno or errno.EINVAL)
        if error.filename == cwd and cwd != program:
            return StartFailed(CANNOT_RUN, f"the {role} cannot start: its work directory {cwd}: {reason}")
        if isinstance(error, FileNotFoundError):
            where = "" if "/" in program else f" on the PATH {self._env.get('PATH', os.defpath)}"
            hint = " (or the interpreter in its first line)" if "/" in program else ""
            return StartFailed(NOT_FOUND, f"the {role} cannot start: {program}{hint} was not found{where}")
        return StartFailed(CANNOT_RUN, f"the {role} cannot start: {program}: {reason}")


def _close(*descriptors: int) -> None:
    for descriptor in {*descriptors}:
        os.close(descriptor)
