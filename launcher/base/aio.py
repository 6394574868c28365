"""Run blocking work outside of the event loop, and wait with a timeout.

The threads that must always work exist from the start of the process on: a full pid limit cannot stop them later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from launcher.base import shortage
from launcher.errors import Exit, Failure

T = TypeVar("T")

log = logging.getLogger(__name__)

_MOST = 32  # threads of one kind of work: more are not needed unless the volume blocks them
_TAKEN_WITHIN = 2.0  # seconds in which a busy thread must become free if no further thread can be started
_STARTED_WITHIN = 10.0  # seconds in which a new thread must run; on a busy machine this may take a second


class _Thread(threading.Thread):
    """A daemon thread. Without memory, a new thread may die before it runs: `start` then raises RuntimeError."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        super().__init__(target=work, name=name, daemon=True)

    def start(self) -> None:
        started: Any = vars(self)["_started"]  # an Event; without a timeout, threading waits for it forever
        started.wait = partial(started.wait, _STARTED_WITHIN)
        super().start()
        if not started.is_set():
            raise RuntimeError(shortage.NO_THREAD)


class Workers:
    """Threads for blocking work of one kind. Each piece of work gets an idle thread, or else a further thread.

    A stalled volume may block a thread forever. So work never waits for a busy thread, unless no further thread can be
    started. Threads that were needed for a moment end, except for `kept` threads.
    """

    def __init__(self, name: str, kept: int) -> None:
        self._name = name
        self._kept = kept
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # the child has none of these threads

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0

    def start(self) -> None:
        """Start the threads that are kept. Raises Failure if one cannot be started."""
        while self._threads < self._kept:
            if not self._add_thread():
                raise shortage.no_thread()

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run `work` in a thread, and return a future of its result.

        If no thread is free or can be started within 2 s, the result is a Failure that names the limit.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        job = _job(loop, result, work, args)
        self.put(job)
        self._expire_later(job, result)
        return result

    def put(self, job: Callable[[], None]) -> bool:
        """Do a job in a thread. Return False if none is free or can be started: the job then waits."""
        with self._changed:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
                return True
        return self._add_thread()

    def _expire_later(self, job: Callable[[], None], result: asyncio.Future[Any]) -> None:
        timer = result.get_loop().call_later(_TAKEN_WITHIN, self._expire, job, result)
        result.add_done_callback(lambda _: timer.cancel())  # the timer must not keep the result

    def _expire(self, job: Callable[[], None], result: asyncio.Future[Any]) -> None:
        """End the wait of a job for a thread."""
        with self._changed:
            if job not in self._jobs:
                return
        if self._add_thread():
            self._expire_later(job, result)  # without memory, the thread may die before it takes the job
            return
        with self._changed:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
        if not result.done():
            result.set_exception(self._no_thread())

    def _no_thread(self) -> Failure:
        if self._threads < _MOST:
            return shortage.no_thread()
        return Failure(Exit.IO_FAILED, f"all {_MOST} threads for {self._name} are blocked: does the volume answer?")

    def _add_thread(self) -> bool:
        with self._changed:
            if self._threads >= _MOST:
                return False
            self._threads += 1
        try:
            _Thread(self._work, self._name).start()
        except (RuntimeError, MemoryError):
            with self._changed:
                self._threads -= 1
            return False
        return True

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if self._idle >= self._kept:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                job = self._jobs.popleft()
            try:
                job()
            except Exception:  # the thread must do its next jobs
                trace = traceback.format_exc()
                log.warning(f"a fault of the launcher itself in a thread for {self._name}, please report it:\n{trace}")
            del job  # a waiting thread must not keep the result


LEASE = Workers("the lease", 1)
STATUS = Workers("the status files", 1)
_OTHERS = Workers("other work", 3)


def start_threads() -> None:
    """Start all threads that are kept. Raises Failure if one cannot be started."""
    for workers in (LEASE, STATUS, _OTHERS):
        workers.start()


def run_in_thread(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run short work, which a stalled volume may block, in a thread. Return a future of its result."""
    return _OTHERS.run(work, *args)


def run_in_own_thread(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run work that lasts in a thread of its own, and return a future of its result. Raises Failure if none is left."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    name = getattr(work, "__name__", "own")
    try:
        _Thread(_job(loop, result, work, args), name).start()
    except (RuntimeError, MemoryError):
        raise shortage.no_thread() from None
    return result


def _job(
    loop: asyncio.AbstractEventLoop, result: asyncio.Future[T], work: Callable[..., T], args: tuple[Any, ...]
) -> Callable[[], None]:
    """Return a function that does the work, and settles the future."""

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
            pass  # the loop has ended: the result is not needed

    return run


async def wait_within(work: Awaitable[T], within: float) -> T:
    """Await `work` for at most `within` seconds, then cancel it and raise asyncio.TimeoutError.

    asyncio.wait_for is not used: before Python 3.12 it can lose a cancellation that comes together with the result.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(
        lambda ended: ended.cancelled() or ended.exception()
    )  # avoids a warning if no one awaits the exception
    try:
        done, _ = await asyncio.wait([task], timeout=within)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
