"""A step that fails is reported with its name. A fault of the launcher itself is reported with its traceback."""

from __future__ import annotations

import asyncio
import errno
import os

from launcher.errors import Exit, Failure
from launcher.model import CauseKind
from launcher.run.steps import Steps
from tests.support.members import in_loop
from tests.support.sessions import settle


async def failure_of(error: Exception | None) -> list[tuple[CauseKind, Failure]]:
    """Run one step that raises this error. Return what is reported."""
    failed: list[tuple[CauseKind, Failure]] = []

    async def work() -> None:
        if error:
            raise error

    await Steps(lambda *failure: failed.append(failure)).begin(CauseKind.STAGING, work)
    return failed


@in_loop
async def test_a_step_that_ends_reports_no_failure() -> None:
    assert await failure_of(None) == []


@in_loop
async def test_a_failure_of_a_step_is_reported_as_it_is() -> None:
    failure = Failure(Exit.NO_INPUT, "no shard")
    assert await failure_of(failure) == [(CauseKind.STAGING, failure)]


@in_loop
async def test_an_unexpected_exception_becomes_a_failure_with_the_name_of_the_step_and_a_traceback() -> None:
    ((step, failure),) = await failure_of(KeyError("shard"))
    assert (step, failure.code) == (CauseKind.STAGING, Exit.MASKED)
    first, *trace = failure.message.splitlines()
    assert first == "a fault of the launcher itself in 'staging', please report it:"
    assert trace[0] == "Traceback (most recent call last):"
    assert "in work" in failure.message
    assert trace[-1] == "KeyError: 'shard'"


@in_loop
async def test_an_error_that_a_limit_has_caused_is_a_failure_that_names_the_limit() -> None:
    ((_, failure),) = await failure_of(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert failure.code == Exit.IO_FAILED
    assert failure.message.startswith("the launcher cannot continue ('staging'): no file descriptor is left (RLIMIT_")
    assert "Traceback" not in failure.message


@in_loop
async def test_the_traceback_of_deep_calls_has_its_last_calls() -> None:
    def deep(left: int) -> None:
        if not left:
            raise KeyError("shard")
        deep(left - 1)

    async def work() -> None:
        deep(100)

    failed: list[Failure] = []
    await Steps(lambda _, failure: failed.append(failure)).begin(CauseKind.STAGING, work)
    assert failed[0].message.endswith("KeyError: 'shard'\n")
    assert len(failed[0].message) < 2048, "the gang sends no more"


@in_loop
async def test_cancelled_steps_end_without_a_failure() -> None:
    failed: list[tuple[CauseKind, Failure]] = []
    steps = Steps(lambda *failure: failed.append(failure))
    tasks = [steps.begin(kind, asyncio.Event().wait) for kind in (CauseKind.PEERS, CauseKind.STAGING)]  # type: ignore[arg-type]
    await settle()
    steps.cancel()
    await asyncio.wait(tasks, timeout=8)
    assert all(task.cancelled() for task in tasks)
    assert failed == []
