"""One role a pod: a role whose Job has failed for good never comes, so whoever waits for it must end, too."""

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
_STANDS = 4.0  # a member that starts again takes its own sign back: what is older than this is meant
_STANDS_POD = 10.0  # a pod that has ended may be of an older Job whose successor has no pod yet
_STANDS_BEFORE = 20.0  # so may a sign from before the own role's first pod
_ANSWER_WITHIN = 5.0  # of the volume, for one look


class OtherRole:
    """Looks for signs of the other role while this one waits for it, and leaves its own for that.

    A sign is a pod that has ended with such a code, where Kubernetes is asked, or a file on the volume.
    """

    def __init__(self, role: str, finder: Finder, failures: FailureMarks) -> None:
        self._other = OTHER_ROLE[role]
        self._finder = finder
        self._failures = failures
        self._follows = False
        self._look: asyncio.Future[FailureMark | None] | None = None
        self._seen: FailureMark | None = None

    async def unless_it_fails(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives, or the Failure once the other role has failed for good."""
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else watching.result()
        finally:
            working.cancel()
            watching.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def tell(self, why: str) -> None:
        """This member has failed for good. Not where it only follows: two that follow each other would never start."""
        if self._follows:
            return
        try:
            await run_in_thread(self._failures.tell, why)
        except Failure as failure:
            log.info(failure.message)

    async def tell_counted(self, limit: int, why: str) -> None:
        """This pod has ended so that its Job counts it: one more than the Job can take, and the role never comes."""
        try:
            count = await run_in_thread(self._failures.counted)
        except Failure as failure:
            log.info(failure.message)
            return
        if count > limit:
            await self.tell(
                f"{count} pods that its Job counts have ended, and its backoffLimit is {limit}; the last: {why}"
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
        """What there is now, and how long it must stand."""
        identity, ended = self._finder.other_role()
        if ended:
            return ended, _STANDS_POD
        sign = await self._sign_on_volume(identity)
        return (sign.text, _STANDS_BEFORE if sign.before else _STANDS) if sign else ("", 0.0)

    async def _sign_on_volume(self, identity: str | None) -> FailureMark | None:
        if self._look is None:
            self._look = run_in_thread(partial(self._failures.of, identity, self._other))
        done, _ = await asyncio.wait([self._look], timeout=_ANSWER_WITHIN)
        if not done:
            return self._seen  # a volume that is slow has not taken anything back
        self._seen, self._look = self._look.result(), None
        return self._seen
