"""In an elastic job: choose the launcher that leads the next gang, its hub.

In this order:

    running    the hub of the gang that holds the lease: it takes new members when it can grow
    before     the hub of the gang that this member has just left
    first      the first member that is there: the lowest number, or the lowest address of pods without numbers

A launcher that cannot be reached is passed over. If two launchers lead at the same time, the one that should follow
notices it (`Leader.watch`). Only one of them can have the lease, so only one of their gangs can ever train.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from launcher.errors import Failure
from launcher.gang import JoinFailed
from launcher.model import TRAINS, Cause, CauseKind, Peers, Roster
from launcher.run.volume import Volume
from launcher.store.lease_files import LeaseFiles

_RUNS_FOR = 30.0  # seconds: a hub renews its lease every 5 s
_PASSED_OVER = 10.0  # seconds, after a launcher could not be reached
_WATCH_AFTER, _WATCH_EVERY = 2.0, 1.0  # seconds; a member of the gang before may take a moment to join


class NotYet(Exception):
    """Which launcher leads is not known yet: find the peers again."""


@dataclass(frozen=True)
class Before:
    """Addresses in the gang that this member has left.

    gone: of the member that is no longer there, or None
    stops: that member was told to stop, so it may still answer
    """

    hub: str
    gone: str | None
    stops: bool

    @staticmethod
    def of(roster: Roster, cause: Cause) -> Before:
        gone = roster.members[cause.rank].address if cause.kind.gone and cause.rank is not None else None
        return Before(roster.members[0].address, gone, cause.kind is CauseKind.STOPPED)


class Leader:
    """The choice of the hub, for one session of one member.

    identity: of the job, or of this member's role; a lease of another job does not count
    settle: seconds in which a member that should lead may still come, at the start of a job
    before: None at the start of this launcher
    """

    def __init__(self, output: str, volume: Volume, settle: float, before: Before | None) -> None:
        self.identity: str | None = None
        self._leases = LeaseFiles(output)
        self._volume = volume
        self._patient_until = 0.0 if before else time.monotonic() + settle
        self._preferred = before.hub if before and before.hub != before.gone else None
        self._passed_over: dict[str, float] = {}
        self._running: str | None = None
        self._stops = before.gone if before and before.stops else None
        if before and before.gone:
            self._passed_over[before.gone] = time.monotonic() + _PASSED_OVER

    async def choose(self, found: Peers, *, all_are_here: bool) -> str | None:
        """Return the address of the hub, or None if this launcher leads. Raises NotYet, or Failure."""
        own = found.me.address
        self._running = await self._hub_that_runs(own)
        if self._running:
            return self._running
        if self._preferred == own:
            return None
        for address in filter(None, (self._preferred, *found.lower)):
            if not self._is_passed_over(address):
                return address
        is_first = found.rank == 0 or all_are_here or time.monotonic() >= self._patient_until
        if found.me.role not in TRAINS or not is_first:
            raise NotYet
        return None

    def failed(self, hub: str | None, failure: JoinFailed) -> None:
        """Learn from a join that has failed. hub: None if this launcher was the hub."""
        refuses = hub is not None and failure.leads
        self._preferred = hub if refuses and hub == self._running else None
        if refuses and hub != self._running:  # it has dissolved its gang, since a member that comes first is there
            self._passed_over = {address: at for address, at in self._passed_over.items() if address == self._stops}
        is_gone = not failure.answers and time.monotonic() >= self._patient_until
        if hub is not None and not failure.leads and (is_gone or hub == self._running):
            self._passed_over[hub] = time.monotonic() + _PASSED_OVER

    async def watch(
        self,
        own: str,
        find: Callable[[], Awaitable[Peers]],
        reaches: Callable[[str], Awaitable[bool]],
        joined: Callable[[], Collection[str]],
        is_complete: Callable[[], Awaitable[bool]],
    ) -> None:
        """While this launcher leads a gang that is not complete, raise JoinFailed as soon as another one should lead.

        Also raise it once another gang has completed the job.

        reaches: returns whether a launcher of this job answers at an address
        joined: returns the addresses of the members that have joined
        """
        await asyncio.sleep(_WATCH_AFTER)
        while True:
            if await _succeeds(is_complete):
                raise JoinFailed("another gang has completed the job")
            if running := await self._hub_that_runs(own):
                raise JoinFailed(f"a gang of this job runs already: its hub is at {running}")
            for address in (await find()).lower:
                stops = address == self._stops and self._is_passed_over(address)
                if address not in joined() and not stops and await reaches(address):
                    self._passed_over.pop(address, None)
                    raise JoinFailed(f"the launcher at {address} comes first, and leads the gang")
            await asyncio.sleep(_WATCH_EVERY)

    async def _hub_that_runs(self, own: str) -> str | None:
        """Return the address of the hub that holds and renews the lease of this job. None if that is not known."""
        try:
            lease = await self._volume(self._leases.latest)
        except Failure:  # the volume does not answer: the hub looks at the lease again before it begins
            return None
        if lease is None or lease.is_released or lease.fault or lease.age >= _RUNS_FOR:
            return None
        address, job = lease.holder.address, lease.holder.job
        is_ours = self.identity is not None and self.identity in (job, *job.split("+"))
        if not address or address == own or not is_ours or self._is_passed_over(address):
            return None
        return address

    def _is_passed_over(self, address: str) -> bool:
        return time.monotonic() < self._passed_over.get(address, 0.0)


async def _succeeds(ask: Callable[[], Awaitable[bool]]) -> bool:
    """Return the answer, or False if the volume does not answer."""
    try:
        return await ask()
    except Failure:
        return False
