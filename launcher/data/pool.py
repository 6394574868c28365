"""Forked workers for file work that may block. The process that holds the pool only hands out tasks.

A task is a function of one of our modules and its arguments; its result comes back. Workers are few at first. While
they spend most of their time waiting (a network volume: a round trip an operation) more are started; where they
compete for the processors (a local disk) there are never more than those need.
"""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import select
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from launcher.data import byte_counter
from launcher.errors import Exit, Failure

T = TypeVar("T")
Task = tuple[Any, ...]

MOST = byte_counter.SLOTS  # workers: enough to hide a slow volume's answers, few enough for N pods not to drown it
_WAITING = 0.25  # a worker that computes, or wants to, for less than this part of its time waits for a file system
_TICK = 1.0  # seconds between calls of the holder's `tick`
_PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct("!I")


class Pool:
    """Use as a context manager. `tick` is called about every second while tasks are done.

    `watch` is a pipe's writing end: when its reader is gone, nobody wants the work any more and this process ends.
    """

    def __init__(self, watch: int | None = None) -> None:
        self.tick: Callable[[], None] = lambda: None
        self._next_tick = time.monotonic() + _TICK
        self._watch = watch
        self._workers: dict[int, _Worker] = {}  # by the descriptor of its results
        self._idle: list[_Worker] = []
        self._first = max(2, len(os.sched_getaffinity(0)))
        self.waits = False  # whether the last task that was done mostly waited for a file system
        self._wall = self._busy = 0.0
        self._before = byte_counter.total()
        self._poll = select.poll()
        if watch is not None:
            self._poll.register(watch, 0)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, tasks: Iterable[Task], done: Callable[[Any], Iterable[Task]] = lambda _: ()) -> None:
        """Do all tasks, and those that `done` makes of each result. Raises the Failure of the first that fails."""
        queue = deque(tasks)
        while queue or len(self._idle) < len(self._workers):
            while queue and (worker := self._free()):
                function, *arguments = queue.popleft()
                _send(worker.tasks, (function.__module__, function.__name__, *arguments))
            for worker in self._ready():
                queue.extend(done(self._result(worker)))

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Do one task and give its result."""
        results: list[T] = []

        def keep(result: T) -> Iterable[Task]:
            results.append(result)
            return ()

        self.run([(function, *arguments)], keep)
        return results[0]

    def copied(self) -> int:
        """Bytes copied so far, by all workers of this pool."""
        return byte_counter.total() - self._before

    def close(self) -> None:
        """Kill the workers. One that a stalled volume holds ends when the volume lets go."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            self._poll.unregister(worker.results)
            os.close(worker.results)
            os.close(worker.tasks)
        deadline = time.monotonic() + 1
        for worker in self._workers.values():
            while os.waitpid(worker.pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.005)
        self._workers.clear()
        self._idle.clear()

    def _free(self) -> _Worker | None:
        if self._idle:
            return self._idle.pop()
        count = len(self._workers)
        if count < self._first or (count < MOST and self._busy < _WAITING * self._wall):
            self._busy = self._wall = 0.0  # the next one only after another result shows the need
            return self._fork()
        return None

    def _ready(self) -> list[_Worker]:
        """Wait for results, or until the next tick."""
        pause = max(0.0, self._next_tick - time.monotonic())
        ready = self._poll.poll(pause * 1000)
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK
            self.tick()
        if any(fd == self._watch for fd, _ in ready):
            os._exit(1)  # the workers go with this process
        return [self._workers[fd] for fd, _ in ready]

    def _result(self, worker: _Worker) -> Any:
        answer = _receive(worker.results)
        if answer is None:
            raise self._lost(worker)
        self._idle.append(worker)
        value, failure, wall, busy = answer
        if failure:
            raise Failure(Exit(failure[0]), failure[1])
        self._wall, self._busy = self._wall + wall, self._busy + busy
        self.waits = busy < _WAITING * wall
        return value

    def _lost(self, worker: _Worker) -> Failure:
        del self._workers[worker.results]
        self._poll.unregister(worker.results)
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        hint = ": is the container's memory limit too small?" if code == -signal.SIGKILL else ""
        return Failure(Exit.IO_FAILED, f"a process that was copying {how}{hint}")

    def _fork(self) -> _Worker:
        read_task, write_task = os.pipe()
        read_result, write_result = os.pipe()
        slot, parent = len(self._workers), os.getpid()
        pid = os.fork()
        if pid == 0:
            self._serve(read_task, write_result, slot, parent)
        os.close(read_task)
        os.close(write_result)
        worker = _Worker(pid, write_task, read_result)
        self._workers[read_result] = worker
        self._poll.register(read_result, select.POLLIN)
        return worker

    def _serve(self, tasks: int, results: int, slot: int, parent: int) -> NoReturn:
        """The whole life of a worker. It holds none of the holder's output open, and does not outlive it."""
        try:
            _die_with(parent)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            gc.disable()  # it would touch, and so copy, memory shared with the holder
            os.umask(0)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            byte_counter.use(slot)
            while (task := _receive(tasks)) is not None:
                _send(results, _do(task))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)


class _Worker:
    def __init__(self, pid: int, tasks: int, results: int) -> None:
        self.pid = pid
        self.tasks = tasks
        self.results = results


def batches(items: Sequence[T], size: Callable[[T], int] = lambda _: 0) -> Iterator[list[T]]:
    """Cut items into batches: small enough for all workers to have their share, large enough not to count."""
    most = max(1, min(64, len(items) // (4 * MOST)))
    batch: list[T] = []
    weight = 0
    for item in items:
        batch.append(item)
        weight += size(item)
        if len(batch) >= most or weight >= 8 * 1024 * 1024:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def _do(task: tuple[Any, ...]) -> tuple[Any, tuple[int, str] | None, float, float]:
    module, name, *arguments = task
    wall, busy = time.perf_counter(), _busy()
    value = failure = None
    try:
        value = getattr(sys.modules[module], name)(*arguments)
    except Failure as found:
        failure = (int(found.code), found.message)
    return value, failure, time.perf_counter() - wall, _busy() - busy


def _busy() -> float:
    """Seconds that this process has computed or waited for a processor: on a busy node no file system is to blame."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            queued = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        queued = 0.0  # a kernel that does not count it
    return time.process_time() + queued


def _send(pipe: int, message: Any) -> None:
    data = marshal.dumps(message)
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    try:
        while rest:
            rest = rest[os.write(pipe, rest) :]
    except BrokenPipeError:
        pass  # the other side is dead, and reading from it will tell


def _receive(pipe: int) -> Any:
    head = _exactly(pipe, _LENGTH.size)
    data = head and _exactly(pipe, _LENGTH.unpack(head)[0])
    return marshal.loads(data) if data else None


def _exactly(pipe: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        more = os.read(pipe, min(count - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)


def _die_with(parent: int) -> None:
    """SIGKILL when the parent dies, also if it died before this was asked for."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
