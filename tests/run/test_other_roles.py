"""A member waits for the other role, until the other role has failed for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from launcher.discovery.finder import SingleFinder
from launcher.errors import Exit, Failure
from launcher.model import Shape
from launcher.run import other_roles
from launcher.run.other_roles import OtherRoles
from launcher.store.failure_marks import FailureMark, FailureMarks
from tests.support import finders
from tests.support.members import until


class Signs(SingleFinder):
    """A finder that returns these descriptions of the other role's pods, one per request."""

    def __init__(self, *said: str) -> None:
        super().__init__(finders.settings(discovery="kubernetes"))
        self.looks: Iterator[str] = chain(said, repeat(said[-1]))
        self.seen = 0

    def other_role(self, role: str) -> tuple[str | None, str]:
        self.seen += 1
        return None, next(self.looks)


def waiting(folder: Path, finder: SingleFinder, heters: int = 0) -> OtherRoles:
    own = FailureMarks(str(folder), "t-uid", "trainer-0")
    own.begin()
    return OtherRoles("trainer", Shape(2, 1, heters), finder, own)


def text(mark: FailureMark | None) -> str:
    return mark.text if mark else ""


def test_a_pod_that_has_ended_for_good_ends_the_waiting_and_a_member_that_follows_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_roles, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(other_roles, "_STANDS_POD", 0.05)
    made = waiting(tmp_path, Signs("pod s-1 has ended"))

    async def test() -> None:
        with pytest.raises(Failure, match="the pservers have failed for good: pod s-1 has ended") as caught:
            await made.unless_it_fails(asyncio.Event().wait())
        assert caught.value.code is Exit.GIVEN_UP
        await made.mark("exit code 71")
        assert FailureMarks(str(tmp_path), "s-uid", "pserver-0").of("t-uid", "trainer") is None

    asyncio.run(test())


def test_a_failed_pod_that_is_replaced_in_time_does_not_end_the_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_roles, "_LOOK_EVERY", 0.01)
    finder = Signs("pod s-1 has ended", "pod s-1 has ended", "")
    made = waiting(tmp_path, finder)

    async def joined() -> str:
        await until(lambda: finder.seen >= 5)
        return "joined"

    async def test() -> None:
        assert await made.unless_it_fails(joined()) == "joined"
        await made.mark("exit code 66")
        assert "exit code 66" in text(FailureMarks(str(tmp_path), "s-uid", "pserver-0").of("t-uid", "trainer"))

    asyncio.run(test())


def test_a_member_waits_for_none_of_the_other_roles_that_has_failed_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_roles, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(other_roles, "_STANDS", 0.05)
    made = waiting(tmp_path, SingleFinder(finders.settings(discovery="static")), heters=1)
    worker = FailureMarks(str(tmp_path), "h-uid", "heter-0")
    worker.begin()
    worker.mark("exit code 78")

    async def test() -> None:
        with pytest.raises(Failure, match="the heter workers have failed for good: exit code 78"):
            await made.unless_it_fails(asyncio.Event().wait())

    asyncio.run(test())


def test_one_failed_pod_above_the_limit_of_the_job_is_marked_for_the_other_role(tmp_path: Path) -> None:
    made = waiting(tmp_path, Signs(""))
    server = FailureMarks(str(tmp_path), "s-uid", "pserver-0")

    async def test() -> None:
        for expected in (
            "",
            "",
            "3 pods that count for its Job's backoffLimit (2) have failed; the last failure: exit code 1",
        ):
            await made.count(2, "exit code 1")
            assert text(server.of("t-uid", "trainer")).startswith(expected)
            assert bool(server.of("t-uid", "trainer")) == bool(expected)

    asyncio.run(test())
