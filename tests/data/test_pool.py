"""Workers that cannot be started: the others do the work, and without any the limit is named."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from launcher.data.pool import Pool
from launcher.errors import Failure


def after(count: int) -> Callable[[], int]:
    """Return a fork that fails after this number of calls, as with a full pid limit."""
    calls: list[int] = []
    fork = os.fork

    def limited() -> int:
        calls.append(1)
        if len(calls) > count:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    return limited


def test_one_worker_does_all_tasks_if_no_other_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", after(1))
    files = len(os.listdir("/proc/self/fd"))
    results: list[str] = []

    def keep(name: str) -> tuple[()]:
        results.append(name)
        return ()

    with Pool() as pool:
        pool.run([(os.path.basename, f"/folder/{number}") for number in range(100)], keep)
    assert sorted(results, key=int) == [str(number) for number in range(100)]
    assert len(os.listdir("/proc/self/fd")) == files


def test_without_any_worker_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", after(0))
    with Pool() as pool, pytest.raises(Failure, match=r"^no process for files can be started: .*pids\.max"):
        pool.call(os.path.basename, "/folder/file")
