"""If each pod has one role, and one role has failed for good, the other role must not wait for the failed role."""

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
from launcher.model import OTHER_ROLE
from launcher.store.failure_marks import FailureMark, FailureMarks

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_EVERY = 2.0
# For how many seconds a sign must be seen before it counts.
_STANDS = 4.0  # a member that starts again removes its own mark
_STANDS_POD = 10.0  # a pod that has ended may be of an older Job, while the new Job has no pod yet
_STANDS_OLD = 20.0  # a mark that is older than the first pod of this member's role may be of an older Job, too
_ANSWER_WITHIN = 5.0  # seconds for one look at the volume


class OtherRole:
    """Watch for signs that the other role has failed for good. Write marks by which the other role sees failures here.

    A sign is a mark on the volume. If the launcher uses the Kubernetes API, a pod that has ended with a final exit code
    is a sign, too.
    """

    def __init__(self, role: str, finder: Finder, marks: FailureMarks) -> None:
        self._other = OTHER_ROLE[role]
        self._finder = finder
        self._marks = marks
        self._follows = False  # this member ends because of the other role
        self._look: asyncio.Future[FailureMark | None] | None = None
        self._seen: FailureMark | None = None

    async def unless_it_fails(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. Raises Failure once the other role has failed for good."""
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else watching.result()
        finally:
            working.cancel()
            watching.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def mark(self, why: str) -> None:
        """Mark this member as failed for good, unless it ends because the other role has failed for good.

        Otherwise each role would end because of the other role's mark, even after the user has repaired the cause.
        """
        if self._follows:
            return
        try:
            await run_in_thread(self._marks.mark, why)
        except Failure as failure:
            log.info(failure.message)

    async def count(self, limit: int, why: str) -> None:
        """Record that this pod ended with an exit code that its Job counts.

        If more pods have ended in this way than `limit` allows, mark this role as failed for good.
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

    async def _watch(self) -> NoReturn:
        seen, since = "", 0.0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            sign, stands = await self._sign()
            if sign != seen:
                seen, since = sign, time.monotonic()
            if sign and time.monotonic() - since >= stands:
                self._follows = True
                raise Failure(Exit.GIVEN_UP, f"given up: the {self._other}s have failed for good: {sign}")

    async def _sign(self) -> tuple[str, float]:
        """Return two values.

        - the current sign ("" if there is none)
        - how long it must be seen before it counts, in seconds
        """
        identity, ended = self._finder.other_role()
        if ended:
            return ended, _STANDS_POD
        mark = await self._mark_on_volume(identity)
        return (mark.text, _STANDS_OLD if mark.is_old else _STANDS) if mark else ("", 0.0)

    async def _mark_on_volume(self, identity: str | None) -> FailureMark | None:
        if self._look is None:
            self._look = run_in_thread(partial(self._marks.of, identity, self._other))
        done, _ = await asyncio.wait([self._look], timeout=_ANSWER_WITHIN)
        if not done:
            return self._seen  # without an answer, the last mark counts
        self._seen, self._look = self._look.result(), None
        return self._seen
