"""Starts processes and learns how they ended, without ever losing an exit code.

Everything that this launcher starts is known from its fork on and collected as ours. Orphans, which fall to process 1
or to a subreaper, are reaped only after a peek has shown that they are not ours: a plain waitpid(-1) steals exit codes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# vfork would hold all threads of the launcher (it keeps Python's lock) while a stalled volume is loading the program.
subprocess._USE_VFORK = False  # type: ignore[attr-defined]

_own: dict[int, _Child] = {}  # forked here and not yet collected
_adopted: set[int] = set()  # forked by other means and not yet collected
_forking: set[int] = set()  # threads whose child may exist but is not yet in _own: while there are any, nobody reaps

_PR_SET_CHILD_SUBREAPER = 36


class _Child(subprocess.Popen[bytes]):
    """A Popen that counts as ours from the moment of the fork, however long its program takes to load."""

    def __init__(self, forked: Callable[[int], None] | None, argv: Sequence[str], **options: Any) -> None:
        self._pid = 0
        self._forked = forked
        try:
            super().__init__(argv, **options)
        except BaseException:
            _forget(self)
            raise

    @property
    def pid(self) -> int:
        return self._pid

    @pid.setter
    def pid(self, pid: int | None) -> None:  # Popen sets None first, and the number right after the fork
        if pid:
            self._pid = pid
            _own[pid] = self
            _forking.discard(threading.get_ident())
            if self._forked is not None:
                self._forked(pid)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, as they do for process 1."""
    if os.getpid() != 1:
        import ctypes  # memory that process 1 does not need

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def heed_all_signals() -> None:
    """Let no signal stay ignored that our parent ignored: exec hands that on to children, which Popen would not undo.

    Call it in the main thread, early. An ignored SIGCHLD would also make the kernel throw exit codes away.
    """
    kept = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}  # Popen restores the last two
    for number in signal.valid_signals() - kept:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def adopt(pid: int) -> None:
    """A child that was forked by other means is no orphan; its exit code is nobody's concern, the reaper takes it."""
    _adopted.add(pid)


def is_own(pid: int) -> bool:
    """Whether this child was started here, in contrast to an orphan that fell to us."""
    return pid in _own or pid in _adopted


def own_module(name: str) -> list[str]:
    """The command that runs one of our modules: by this very Python, which heeds PYTHON* variables if this one does."""
    return [sys.executable, *(["-I"] if sys.flags.isolated else []), "-m", name]


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    forked: Callable[[int], None] | None = None,
    **pipes: Any,
) -> subprocess.Popen[bytes]:
    """Popen in a session of its own. Blocks while the kernel loads the program: call it through `off_loop`.

    `forked` is told the process id at once. All signals are unblocked and at their defaults in the child: exec resets
    the handled ones, and Popen those that Python ignores (SIGPIPE).
    """
    thread = threading.get_ident()
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _forking.add(thread)
    try:
        return _Child(forked, argv, env=dict(env), cwd=cwd, start_new_session=True, restore_signals=True, **pipes)
    finally:
        _forking.discard(thread)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


async def ended(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child of `spawn`, as a shell would show it: 128 + n for signal n."""
    reap_orphans()  # the fork of this child may have held the reaper off
    if child.returncode is None:
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(child.pid)
        dead: asyncio.Future[None] = loop.create_future()

        def died() -> None:
            loop.remove_reader(fd)
            if not dead.done():
                dead.set_result(None)

        loop.add_reader(fd, died)
        try:
            await dead
        finally:
            loop.remove_reader(fd)
            os.close(fd)
    _forget(child)  # before its number is free again
    code = child.wait()
    reap_orphans()
    return code if code >= 0 else 128 - code


def reap_orphans() -> None:
    """Collect everybody who is dead; the codes of ours are kept for `ended`. Call it on SIGCHLD, only on the loop."""
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or _forking:  # asked after the peek: what it saw may have been forked since the last look
            return
        child = _own.pop(dead.si_pid, None)
        _adopted.discard(dead.si_pid)
        if child is not None:
            child.poll()
        else:
            os.waitpid(dead.si_pid, os.WNOHANG)


def _forget(child: subprocess.Popen[bytes]) -> None:
    if _own.get(child.pid) is child:  # the number may be another child's by now
        del _own[child.pid]
