"""A step that fails is reported with its name. A fault of the launcher itself is reported with its traceback."""

from __future__ import annotations

import asyncio

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
async def test_cancelled_steps_end_without_a_failure() -> None:
    failed: list[tuple[CauseKind, Failure]] = []
    steps = Steps(lambda *failure: failed.append(failure))
    tasks = [steps.begin(kind, asyncio.Event().wait) for kind in (CauseKind.PEERS, CauseKind.STAGING)]  # type: ignore[arg-type]
    await settle()
    steps.cancel()
    await asyncio.wait(tasks, timeout=8)
    assert all(task.cancelled() for task in tasks)
    assert failed == []
