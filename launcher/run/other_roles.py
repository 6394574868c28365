"""End the wait for the other roles if one of them has failed for good. Only for jobs with one role per pod."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, NoReturn, TypeVar

from launcher.base.aio import run_in_thread
from launcher.discovery.finder import Finder
from launcher.errors import Exit, Failure
from launcher.model import Shape, role_name
from launcher.store.failure_marks import FailureMark, FailureMarks

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_EVERY = 2.0
# How many seconds a sign must stay before it counts, for each kind of sign.
_STANDS = 4.0  # a mark: a member that starts again removes its own mark in this time
_STANDS_POD = 10.0  # a pod that has ended: it may be of an older Job, while the new Job has no pod yet
_STANDS_OLD = 20.0  # a mark that is older than the first pod of this member's role: it may be of an older Job
_ANSWER_WITHIN = 5.0  # seconds for one look at the volume


class OtherRoles:
    """Watch for signs that another role has failed for good. Write marks about failures of this role.

    A sign is a mark on the volume. If the launcher uses the Kubernetes API, a pod that has ended with a final exit code
    is a sign, too.
    """

    def __init__(self, role: str, shape: Shape, finder: Finder, marks: FailureMarks) -> None:
        self._others = [other for other in shape.roles if other != role]
        self._finder = finder
        self._marks = marks
        self._follows = False  # whether this member ends because another role has failed
        self._looks: dict[str, asyncio.Future[FailureMark | None]] = {}  # by role
        self._seen: dict[str, FailureMark | None] = {}

    async def unless_it_fails(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. Raises Failure once another role has failed for good."""
        working = asyncio.ensure_future(work)
        watching = [asyncio.ensure_future(self._watch(role)) for role in self._others]
        try:
            done, _ = await asyncio.wait([working, *watching], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else next(each for each in watching if each in done).result()
        finally:
            for each in (working, *watching):
                each.cancel()
            await asyncio.gather(working, *watching, return_exceptions=True)

    async def mark(self, why: str) -> None:
        """Mark this member as failed for good, unless it ends because another role has failed for good.

        Otherwise all roles would have marks, each because of another. All roles would then end again, even after the
        user has repaired the cause.
        """
        if self._follows:
            return
        try:
            await run_in_thread(self._marks.mark, why)
        except Failure as failure:
            log.info(failure.message)

    async def count(self, limit: int, why: str) -> None:
        """Record that this pod ended with an exit code that its Job counts.

        If more than `limit` pods of this role have ended in this way, mark this role as failed for good.
        """
        try:
            count = await run_in_thread(self._marks.count)
        except Failure as failure:
            log.info(failure.message)
            return
        if count > limit:
            await self.mark(
                f"{count} pods that count for its Job's backoffLimit ({limit}) have failed; the last failure: {why}"
            )

    async def _watch(self, role: str) -> NoReturn:
        seen, since = "", 0.0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            sign, stands = await self._sign(role)
            if sign != seen:
                seen, since = sign, time.monotonic()
            if sign and time.monotonic() - since >= stands:
                self._follows = True
                raise Failure(Exit.GIVEN_UP, f"given up: the {role_name(role)}s have failed for good: {sign}")

    async def _sign(self, role: str) -> tuple[str, float]:
        """Return two values.

        - the current sign ("" if there is none)
        - how many seconds this sign must stay before it counts
        """
        identity, ended = self._finder.other_role(role)
        if ended:
            return ended, _STANDS_POD
        mark = await self._mark_on_volume(role, identity)
        return (mark.text, _STANDS_OLD if mark.is_old else _STANDS) if mark else ("", 0.0)

    async def _mark_on_volume(self, role: str, identity: str | None) -> FailureMark | None:
        if role not in self._looks:
            self._looks[role] = run_in_thread(partial(self._marks.of, identity, role))
        done, _ = await asyncio.wait([self._looks[role]], timeout=_ANSWER_WITHIN)
        if done:  # else the volume does not answer, so the mark from the previous look counts
            self._seen[role] = self._looks.pop(role).result()
        return self._seen.get(role)
