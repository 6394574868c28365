"""Forked workers for file operations that may block. The process that holds the pool only distributes tasks.

A task is a function of an imported module with its arguments. At first there are few workers. More workers are started
while the workers mostly wait, for example on a network volume with a round trip per operation. On a local disk the
workers compete for the processors, so no more workers are started.
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
from contextlib import ExitStack
from typing import Any, NoReturn, TypeVar

from launcher.base import shortage
from launcher.data import progress
from launcher.errors import Exit, Failure

T = TypeVar("T")
Task = tuple[Any, ...]

MAX_WORKERS = progress.SLOTS  # enough to hide a volume's latency, few enough that N pods do not overload it
_WAITING = 0.25  # a worker mostly waits if it computes, or waits for a processor, for less than this share of its time
_TICK = 1.0  # seconds between calls of `on_tick`
_CLOSE_TIMEOUT = 1.0
_PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct("!I")


class Pool:
    """A context manager that forks workers, runs tasks in them, and kills them at its end.

    `on_tick` is called about every second while tasks run. `output` is the writing end of a pipe. If the reader of the
    pipe closes it, this process exits, since the reader no longer needs the result.
    """

    def __init__(self, output: int | None = None) -> None:
        self.on_tick: Callable[[], None] = lambda: None
        self._next_tick = time.monotonic() + _TICK
        self._output = output
        self._workers: dict[int, _Worker] = {}  # by the descriptor of the pipe with their results
        self._idle: list[_Worker] = []
        self._min_workers = max(2, len(os.sched_getaffinity(0)))
        self.last_task_waited = False  # whether the last finished task mostly waited for the file system
        self._wall = self._busy = 0.0  # seconds of all tasks since the last start of a worker
        self._copied_before = progress.copied_bytes()
        self._poll = select.poll()
        if output is not None:
            self._poll.register(output, 0)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, tasks: Iterable[Task], on_result: Callable[[Any], Iterable[Task]] = lambda _: ()) -> None:
        """Run all tasks, and the tasks that `on_result` returns for each result. Raises the first Failure of a task."""
        queue = deque(tasks)
        while queue or len(self._idle) < len(self._workers):
            while queue and (worker := self._free_worker()):
                function, *arguments = queue.popleft()
                _send(worker.tasks, (function.__module__, function.__name__, *arguments))
            for worker in self._ready():
                queue.extend(on_result(self._result(worker)))

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run one task and return its result."""
        results: list[T] = []

        def keep(result: T) -> Iterable[Task]:
            results.append(result)
            return ()

        self.run([(function, *arguments)], keep)
        return results[0]

    def copied(self) -> int:
        """Return how many bytes the workers of this pool have copied."""
        return progress.copied_bytes() - self._copied_before

    def close(self) -> None:
        """Kill the workers. A worker that is blocked on a stalled volume ends once the volume answers."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            self._poll.unregister(worker.results)
            os.close(worker.results)
            os.close(worker.tasks)
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for worker in self._workers.values():
            while os.waitpid(worker.pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.005)
        self._workers.clear()
        self._idle.clear()

    def _free_worker(self) -> _Worker | None:
        """Return an idle worker, or start one. Return None if all workers are busy and no further worker is useful."""
        if self._idle:
            return self._idle.pop()
        count = len(self._workers)
        if count < self._min_workers or (count < MAX_WORKERS and self._busy < _WAITING * self._wall):
            self._busy = self._wall = 0.0  # start the next worker only after another result
            try:
                return self._fork()
            except OSError as error:
                if not self._workers:
                    why = shortage.explain(error, starting=True) or error
                    raise Failure(Exit.IO_FAILED, f"no process for files can be started: {why}") from None
        return None

    def _ready(self) -> list[_Worker]:
        """Wait for results or for the next tick. Return the workers with results."""
        pause = max(0.0, self._next_tick - time.monotonic())
        ready = self._poll.poll(pause * 1000)
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK
            self.on_tick()
        if any(fd == self._output for fd, _ in ready):
            os._exit(1)  # the kernel then kills the workers
        return [self._workers[fd] for fd, _ in ready]

    def _result(self, worker: _Worker) -> Any:
        answer = _receive(worker.results)
        if answer is None:
            raise self._explain_death(worker)
        self._idle.append(worker)
        value, failure, wall, busy = answer
        if failure:
            raise Failure(Exit(failure[0]), failure[1])
        self._wall, self._busy = self._wall + wall, self._busy + busy
        self.last_task_waited = busy < _WAITING * wall
        return value

    def _explain_death(self, worker: _Worker) -> Failure:
        del self._workers[worker.results]
        self._poll.unregister(worker.results)
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        hint = ": is the container's memory limit too small?" if code == -signal.SIGKILL else ""
        return Failure(Exit.IO_FAILED, f"a process that was copying {how}{hint}")

    def _fork(self) -> _Worker:
        with ExitStack() as opened:
            read_task, write_task = _pipe(opened)
            read_result, write_result = _pipe(opened)
            slot, parent = len(self._workers), os.getpid()
            pid = os.fork()
            opened.pop_all()
        if pid == 0:
            self._serve(read_task, write_result, slot, parent)
        os.close(read_task)
        os.close(write_result)
        worker = _Worker(pid, write_task, read_result)
        self._workers[read_result] = worker
        self._poll.register(read_result, select.POLLIN)
        return worker

    def _serve(self, tasks: int, results: int, slot: int, parent: int) -> NoReturn:
        """Run a worker, in the forked process. Close the parent's output in the worker. End when the parent ends."""
        try:
            _end_with_parent(parent)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            gc.disable()  # a collection would write to, and so copy, memory shared with the parent
            os.umask(0)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            progress.use_slot(slot)
            while (task := _receive(tasks)) is not None:
                _send(results, _run_task(task))
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
    """Divide items into batches: small enough to keep all workers busy, large enough to cost few messages."""
    limit = max(1, min(64, len(items) // (4 * MAX_WORKERS)))
    batch: list[T] = []
    weight = 0
    for item in items:
        batch.append(item)
        weight += size(item)
        if len(batch) >= limit or weight >= 8 * 1024 * 1024:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def _pipe(opened: ExitStack) -> tuple[int, int]:
    """Open a pipe that `opened` closes."""
    ends = os.pipe()
    for end in ends:
        opened.callback(os.close, end)
    return ends


def _run_task(task: tuple[Any, ...]) -> tuple[Any, tuple[int, str] | None, float, float]:
    module, name, *arguments = task
    wall, busy = time.perf_counter(), _busy_seconds()
    value = failure = None
    try:
        value = getattr(sys.modules[module], name)(*arguments)
    except Failure as error:
        failure = (int(error.code), error.message)
    return value, failure, time.perf_counter() - wall, _busy_seconds() - busy


def _busy_seconds() -> float:
    """Return how long this process has computed or waited for a processor. The rest is waiting for file systems."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            queued = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        queued = 0.0  # this kernel does not measure the waits for a processor
    return time.process_time() + queued


def _send(pipe: int, message: Any) -> None:
    data = marshal.dumps(message)
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    try:
        while rest:
            rest = rest[os.write(pipe, rest) :]
    except BrokenPipeError:
        pass  # the other process is dead: the next read from it returns nothing


def _receive(pipe: int) -> Any:
    head = _read_exactly(pipe, _LENGTH.size)
    data = head and _read_exactly(pipe, _LENGTH.unpack(head)[0])
    return marshal.loads(data) if data else None


def _read_exactly(pipe: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        more = os.read(pipe, min(count - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Exit now if the parent is already dead."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
