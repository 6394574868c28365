"""Blocking work gets a thread, even if a stalled volume blocks other threads. A shortage of threads is named."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest

from launcher.base import aio
from launcher.base.aio import Workers, run_in_own_thread
from launcher.errors import Exit, Failure
from tests.support.members import in_loop, until


class Gate:
    """Work that is blocked, as on a stalled volume, until the test opens the gate."""

    def __init__(self) -> None:
        self.blocked = 0
        self.opened = threading.Event()

    def work(self) -> None:
        self.blocked += 1
        self.opened.wait(60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def use_up_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread start any more, as with a full pid limit."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)


def threads_of(workers: Workers) -> int:
    return sum(thread.name == workers._name for thread in threading.enumerate())


@in_loop
async def test_the_threads_that_are_kept_exist_from_the_start_and_are_used_again() -> None:
    workers = Workers("test: kept", 2)
    workers.start()
    assert threads_of(workers) == 2
    before = set(threading.enumerate())
    for _ in range(20):
        assert await workers.run(threading.current_thread) in before
        await until(lambda: workers._idle == 2)
    assert threads_of(workers) == 2


@in_loop
async def test_blocked_threads_delay_no_other_work_and_end_when_they_are_not_needed(gate: Gate) -> None:
    workers = Workers("test: blocked", 1)
    workers.start()
    blocked = [workers.run(gate.work) for _ in range(5)]
    await until(lambda: gate.blocked == 5)
    assert await asyncio.wait_for(workers.run(lambda: "done"), 8) == "done"
    gate.opened.set()
    await asyncio.gather(*blocked)
    await until(lambda: threads_of(workers) == 1)


@in_loop
async def test_a_result_or_an_exception_arrives() -> None:
    workers = Workers("test: results", 1)
    assert await workers.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await workers.run(divmod, 7, 0)


@in_loop
async def test_a_job_that_raises_an_exception_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    workers = Workers("test: faults", 1)
    workers.start()
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "test: faults")
    workers.put(lambda: [][0])
    await until(lambda: caplog.messages and workers._idle == 1)
    assert await workers.run(threading.current_thread) is thread
    assert "a fault of the launcher itself in a thread for test: faults" in caplog.messages[0]


@in_loop
async def test_without_a_further_thread_work_waits_until_a_kept_thread_is_free(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers("test: waits", 1)
    workers.start()
    use_up_threads(monkeypatch)
    blocked = workers.run(gate.work)
    waiting = [workers.run(lambda: "done"), workers.run(lambda: "done")]
    await until(lambda: gate.blocked)
    gate.opened.set()
    assert await asyncio.gather(blocked, *waiting) == [None, "done", "done"]


@in_loop
async def test_work_that_gets_no_thread_in_time_fails_and_names_the_limit(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "_TAKEN_WITHIN", 0.05)
    workers = Workers("test: fails", 1)
    workers.start()
    use_up_threads(monkeypatch)
    blocked = workers.run(gate.work)
    did: list[str] = []
    with pytest.raises(Failure, match=r"^no thread can be started: .*pids\.max = .*raise the limit") as caught:
        await asyncio.wait_for(workers.run(did.append, "too late"), 8)
    assert caught.value.code == Exit.IO_FAILED
    gate.opened.set()
    await blocked
    assert await workers.run(lambda: "done") == "done"
    assert did == []


@in_loop
async def test_a_thread_that_dies_before_it_runs_does_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without memory, Python ends a new thread at its first allocation."""
    monkeypatch.setattr(aio, "_STARTED_WITHIN", 0.1)
    monkeypatch.setattr(aio, "_TAKEN_WITHIN", 0.1)
    workers = Workers("test: dies", 0)
    with monkeypatch.context() as memory:
        memory.setattr(threading.Thread, "_bootstrap", lambda _: None)
        with pytest.raises(Failure, match="no thread can be started"):
            await asyncio.wait_for(workers.run(lambda: "done"), 8)
        with pytest.raises(Failure, match="no thread can be started"):
            run_in_own_thread(lambda: "done")
    assert await asyncio.wait_for(workers.run(lambda: "done"), 8) == "done"


@in_loop
async def test_a_thread_that_dies_before_it_takes_its_work_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "_TAKEN_WITHIN", 0.1)
    workers = Workers("test: is replaced", 0)
    with monkeypatch.context() as memory:
        memory.setattr(threading.Thread, "run", lambda _: None)
        waiting = workers.run(lambda: "done")
    assert await asyncio.wait_for(waiting, 8) == "done"


@in_loop
async def test_a_thread_that_can_be_started_again_does_the_work_that_waits(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "_TAKEN_WITHIN", 0.05)
    workers = Workers("test: again", 1)
    workers.start()
    with monkeypatch.context() as shortage:
        use_up_threads(shortage)
        workers.run(gate.work)
        waiting = workers.run(lambda: "done")
    assert await asyncio.wait_for(waiting, 8) == "done"


@in_loop
async def test_the_number_of_blocked_threads_is_limited_and_named(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "_TAKEN_WITHIN", 0.05)
    monkeypatch.setattr(aio, "_MOST", 3)
    workers = Workers("test: volume", 1)
    for _ in range(3):
        workers.run(gate.work)
    with pytest.raises(Failure, match=r"^all 3 threads for test: volume are blocked: does the volume answer\?"):
        await asyncio.wait_for(workers.run(time.monotonic), 8)


@in_loop
async def test_a_thread_that_cannot_exist_from_the_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    use_up_threads(monkeypatch)
    with pytest.raises(Failure, match="no thread can be started"):
        Workers("test: none", 1).start()
    with pytest.raises(Failure, match="no thread can be started"):
        run_in_own_thread(time.monotonic)


@in_loop
async def test_work_that_lasts_gets_a_thread_of_its_own(gate: Gate) -> None:
    lasting = [run_in_own_thread(gate.work) for _ in range(40)]
    await until(lambda: gate.blocked == 40)
    assert await aio.run_in_thread(lambda: "done") == "done"
    gate.opened.set()
    await asyncio.gather(*lasting)


@in_loop
async def test_the_child_of_a_fork_starts_threads_of_its_own() -> None:
    workers = Workers("test: fork", 1)
    workers.start()
    assert await workers.run(os.getpid) == os.getpid()
    child = os.fork()
    if child == 0:
        done = threading.Event()
        workers.put(done.set)
        os._exit(0 if done.wait(10) else 1)
    _, status = await workers.run(os.waitpid, child, 0)
    assert status == 0
