"""An exception that no code handles is a fault of the launcher, which ends this member. Other problems are logged."""

from __future__ import annotations

import asyncio
import errno
import os
import re

import pytest

from launcher.errors import Exit, Failure
from launcher.run import faults as faults_module
from launcher.run.faults import Faults
from tests.support.members import in_loop
from tests.support.sessions import settle


def watched() -> Faults:
    faults = Faults()
    faults.watch()
    return faults


def fail(error: Exception) -> None:
    raise error


@in_loop
async def test_an_exception_in_a_callback_is_a_fault_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    faults = watched()
    asyncio.get_running_loop().call_soon(fail, ValueError("a bug"))
    failure = await asyncio.wait_for(faults.first, 8)
    assert failure.code == Exit.MASKED
    assert failure.message.startswith("a fault of the launcher itself in 'launcher', please report it:\nTraceback")
    assert failure.message.endswith("ValueError: a bug\n")
    assert "a bug" in caplog.messages[0]


@pytest.mark.parametrize("error", [ValueError("a bug"), Failure(Exit.IO_FAILED, "no thread, which is a bug")])
@in_loop
async def test_an_exception_in_a_task_that_no_code_awaits_is_a_fault_even_if_the_task_is_kept(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(faults_module, "_AWAITED_WITHIN", 0.01)
    faults = watched()

    async def work() -> None:
        fail(error)

    kept = asyncio.ensure_future(work())
    assert "a bug" in (await asyncio.wait_for(faults.first, 8)).message
    assert kept.done()


@in_loop
async def test_an_exception_that_other_code_retrieves_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(faults_module, "_AWAITED_WITHIN", 0.01)
    faults = watched()

    async def work() -> None:
        fail(ValueError("expected"))

    kept = asyncio.ensure_future(work(), loop=asyncio.get_running_loop())
    await asyncio.wait([kept])
    with pytest.raises(ValueError, match="expected"):
        kept.result()
    await asyncio.sleep(0.05)
    assert not faults.first.done()
    assert caplog.messages == []


@in_loop
async def test_only_the_first_fault_counts() -> None:
    faults = watched()
    for number in range(3):
        asyncio.get_running_loop().call_soon(fail, ValueError(f"bug {number}"))
    await settle()
    assert "bug 0" in faults.first.result().message


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "Exception in callback fail.*: .*reset"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "Exception in callback fail.*: no file descriptor is left"),
        (Failure(Exit.IO_FAILED, "no thread can be started"), "no thread can be started"),
    ],
    ids=["a connection", "a descriptor", "a failure"],
)
@in_loop
async def test_a_problem_of_one_connection_or_one_file_is_only_logged(
    caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    faults = watched()
    asyncio.get_running_loop().call_soon(fail, error)
    await settle()
    assert not faults.first.done()
    (message,) = caplog.messages
    assert re.match(said, message)


@in_loop
async def test_repeated_problems_are_logged_once_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    watched()
    for _ in range(50):
        asyncio.get_running_loop().call_soon(fail, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    await settle()
    assert len(caplog.messages) == 1


@in_loop
async def test_what_has_no_exception_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    faults = watched()
    asyncio.get_running_loop().call_exception_handler({"message": "a task was dropped"})
    assert caplog.messages == ["a task was dropped"]
    assert not faults.first.done()
