"""Starts processes and learns how they ended, without ever losing an exit code.

Everything that this launcher starts is collected through its own pidfd. Orphans, which fall to process 1 or to a
subreaper, are reaped only after a peek has shown that they are not ours: a plain waitpid(-1) would steal exit codes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_own: set[int] = set()  # started here and not yet collected
_starting: set[object] = set()  # children between fork and _own: while there are any, the reaper waits

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, as they do for process 1."""
    if os.getpid() != 1:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def adopt(pid: int) -> None:
    """A child that was forked by other means: somebody else collects it, the reaper leaves it alone."""
    _own.add(pid)


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, **pipes: Any
) -> subprocess.Popen[bytes]:
    """Popen in a session of its own. Blocks while the kernel loads the program: call it through `off_loop`.

    Handled and ignored signals are at their defaults in the child: the launcher handles the ones that it was
    given, exec resets those, and Popen restores the ones that Python ignores (SIGPIPE).
    """
    mark = object()
    _starting.add(mark)
    try:
        child = subprocess.Popen(argv, env=dict(env), cwd=cwd, start_new_session=True, restore_signals=True, **pipes)
        _own.add(child.pid)
    finally:
        _starting.discard(mark)
    return child


async def ended(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child of `spawn`, as a shell would show it: 128 + n for signal n."""
    if child.returncode is None:
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(child.pid)
        dead: asyncio.Future[None] = loop.create_future()

        def died() -> None:
            loop.remove_reader(fd)
            dead.set_result(None)

        loop.add_reader(fd, died)
        try:
            await dead
        finally:
            loop.remove_reader(fd)
            os.close(fd)
    code = child.wait()
    _own.discard(child.pid)
    reap_orphans()
    return code if code >= 0 else 128 - code


def reap_orphans() -> None:
    """Collect dead descendants that nobody waits for. Call it on SIGCHLD and when a start has ended."""
    while not _starting:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in _own:
            return  # ours is collected by its pidfd, which calls here again for those behind it
        os.waitpid(dead.si_pid, os.WNOHANG)


def off_loop(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run `work` in a thread of its own: what may block for ever (a stalled volume) must hold neither loop nor pool."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not result.done():
            set_it(value)

    def run() -> None:
        try:
            value = work(*args)
        except BaseException as error:
            outcome: tuple[Callable[[Any], None], object] = (result.set_exception, error)
        else:
            outcome = (result.set_result, value)
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # the loop has ended meanwhile: nobody waits any more

    threading.Thread(target=run, daemon=True, name=getattr(work, "__name__", "off-loop")).start()
    return result
