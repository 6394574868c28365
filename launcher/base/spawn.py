"""Start processes, wait for their exit codes, and reap orphans.

Process 1 and subreapers inherit orphans and must reap them. waitpid(-1) would take the exit codes of this process's own
children, too. So each own child is registered at its fork. The reaper checks which process is dead before it reaps.

SIGCHLD shows that a child has died. A pidfd would need a file descriptor and Linux 5.3, and some sandboxes deny it.
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

# vfork keeps the GIL until the program is loaded: a stalled volume would block all threads of the launcher.
subprocess._USE_VFORK = False  # type: ignore[attr-defined]

_own: dict[int, _Child] = {}  # forked by `spawn` and not yet reaped
_adopted: set[int] = set()  # forked without `spawn` and not yet reaped
_forking: set[int] = set()  # threads whose child may exist but is not yet in _own; meanwhile nothing is reaped

_LOOK_EVERY = 2.0  # seconds between looks at a child: SIGCHLD may be lost if this process gets a flood of signals
_PR_SET_CHILD_SUBREAPER = 36


class _Child(subprocess.Popen[bytes]):
    """A Popen that is registered at its fork, before its program is loaded."""

    def __init__(self, forked: Callable[[int], None] | None, argv: Sequence[str], **options: Any) -> None:
        self._pid = 0
        self._forked = forked
        self.waiting: list[asyncio.Future[None]] = []  # for its death
        try:
            super().__init__(argv, **options)
        except BaseException:
            _forget(self)
            raise

    @property
    def pid(self) -> int:
        return self._pid

    @pid.setter
    def pid(self, pid: int | None) -> None:  # Popen sets None first, and the pid right after the fork
        if pid:
            self._pid = pid
            _own[pid] = self
            _forking.discard(threading.get_ident())
            if self._forked is not None:
                self._forked(pid)


def become_subreaper() -> None:
    """Let this process inherit its orphaned descendants, as process 1 does."""
    if os.getpid() != 1:
        import ctypes  # imported here to save memory in process 1

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def handle_ignored_signals() -> None:
    """Install handlers for all signals that the parent process ignored, and unblock those that it blocked.

    Otherwise all children would ignore them, too. The caller must call this early, in the main thread. While SIGCHLD is
    ignored, the kernel drops exit codes. While it is blocked, no death is seen.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    kept = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}  # Popen restores the last two
    for number in signal.valid_signals() - kept:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def register_fork(pid: int) -> None:
    """Register a child forked without `spawn`. The child then does not count as an orphan. Drop its exit code."""
    _adopted.add(pid)


def is_own_child(pid: int) -> bool:
    """Return whether this process started the child. If not, the child is an orphan."""
    return pid in _own or pid in _adopted


def module_command(name: str) -> list[str]:
    """Return the command that runs a module of this package. It has -I if this process was started with -I."""
    return [sys.executable, *(["-I"] if sys.flags.isolated else []), "-m", name]


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    forked: Callable[[int], None] | None = None,
    **pipes: Any,
) -> subprocess.Popen[bytes]:
    """Start a process in a new session. Blocks until the program is loaded: the event loop must not call it.

    `forked` is called with the pid right after the fork. In the child, all signals are unblocked and have their default
    actions: exec resets handled signals, and Popen resets the signals that Python ignores (SIGPIPE).
    """
    thread = threading.get_ident()
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _forking.add(thread)
    try:
        return _Child(forked, argv, env=dict(env), cwd=cwd, start_new_session=True, restore_signals=True, **pipes)
    finally:
        _forking.discard(thread)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def watch_children() -> None:
    """Reap dead children on the running event loop as soon as they die. The loop must run in the main thread."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap_orphans)


async def wait_for_exit(child: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a child of `spawn`, and return its exit code, or 128 + n after signal n, as a shell does."""
    assert isinstance(child, _Child)
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        watch_children()
    reap_orphans()  # during the fork of this child, the reaper may have returned early
    while child.returncode is None:
        dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        child.waiting.append(dead)
        try:
            await asyncio.wait([dead], timeout=_LOOK_EVERY)
        finally:
            child.waiting.remove(dead)
        reap_orphans()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def reap_orphans() -> None:
    """Reap all dead children. The exit codes of own children stay for `wait_for_exit`.

    The caller must call this on the event loop.
    """
    for child in list(_own.values()):
        if child.poll() is not None:
            _forget(child)
            for waiting in child.waiting:
                if not waiting.done():
                    waiting.set_result(None)
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or _forking or dead.si_pid in _own:  # checked after waitid: it may have been forked just now
            return
        _adopted.discard(dead.si_pid)
        os.waitpid(dead.si_pid, os.WNOHANG)


def _forget(child: subprocess.Popen[bytes]) -> None:
    if _own.get(child.pid) is child:  # another child may have this pid now
        del _own[child.pid]
