"""The hub's lease on its output folder: take it, renew it, and notice that it is lost. See `lease_files`."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial

from launcher.base.aio import LEASE, wait_within
from launcher.base.files import FromVolume
from launcher.errors import Exit, Failure
from launcher.model import Cause, CauseKind
from launcher.store.lease_files import Lease, LeaseFiles, LeaseOwner

log = logging.getLogger(__name__)

_REPORT_EVERY = 30.0
_LOOK_EVERY = 1.0
_LOOK_AT_RELEASED = 0.25  # the same if the lease is released: its hub may say earlier that all processes have ended
_RENEW_EVERY_AT_MOST = 5.0
_RENEWALS_MISSED = 2  # the least number before a silent holder counts as gone, even if the volume's clock is wrong


class OtherGangRuns(Exception):
    """Another gang of this job trains into the folder. The argument: the pod of its hub."""


class LeaseHolder:
    """The hub's lease on its output folder. The hub acquires the lease before a generation begins, and then renews it.

    If the hub cannot renew the lease in time, it has lost the lease. Another gang may then assume that all processes of
    this hub's gang have ended.

    me: the gang that this hub belongs to. The caller sets it before `acquire`. A hub that joins again has a new gang.
    patience: how many seconds `acquire` waits while another gang holds the lease
    lost: called with the cause if the lease is lost, at most once per `acquire`
    """

    def __init__(
        self,
        leases: LeaseFiles,
        *,
        silence: float,
        patience: float,
        from_volume: FromVolume,
        lost: Callable[[Cause], None],
    ) -> None:
        self.me = LeaseOwner("", "", "", "", 0.0)
        self._leases = leases
        self._silence = silence
        self._renew_every = min(_RENEW_EVERY_AT_MOST, silence / 8)
        self._patience = patience
        self._from_volume = from_volume
        self._lost = lost
        self._number = 0
        self._renewed_at = -math.inf
        self._taking: asyncio.Future[bool] | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_held(self) -> bool:
        """Whether this hub holds the lease, and renews it."""
        return self._renewing is not None and not self._renewing.done()

    @property
    def age(self) -> float:
        """The seconds since the begin of the latest call that took or renewed the lease."""
        return time.monotonic() - self._renewed_at

    async def acquire(self, *, yields: bool = False) -> bool:
        """Wait until no other gang trains into the folder, then take the lease. Return whether it was taken.

        Return False immediately if this hub already holds the lease. Raises Failure if another gang holds the lease for
        longer than `patience`.

        yields: raise OtherGangRuns if another gang of this job renews its lease
        """
        if self.is_held:
            return False
        seen, seen_at, reported_at = None, 0.0, -_REPORT_EVERY
        first: Lease | None = None
        until = time.monotonic() + self._patience
        while True:
            asked_at = time.monotonic()
            lease = await self._from_volume(self._leases.latest)
            if lease is None or (lease.number, lease.changed_at) != seen:
                seen, seen_at = lease and (lease.number, lease.changed_at), asked_at
            if yields and lease and first and self._is_renewed(first, lease):
                raise OtherGangRuns(lease.holder.pod)
            first = first or lease
            if lease is None or self._may_take(lease, asked_at - seen_at):
                number = 0 if lease is None else lease.number + 1
                take = self._from_volume(partial(self._leases.take, number, self.me))
                self._taking = asyncio.ensure_future(take)
                if await asyncio.shield(self._taking):  # the lease may be taken even if the caller is cancelled
                    self._number = number
                    self._renewed_at = asked_at
                    self._renewing = asyncio.create_task(self._renew())
                    return True
            elif asked_at >= until:
                waited = f"waited {self._patience:g} s (LAUNCHER_PEER_TIMEOUT)"
                raise Failure(Exit.TIMED_OUT, f"{waited} {self._what_for(lease)}")
            elif asked_at - reported_at >= _REPORT_EVERY:
                log.info(f"waiting {self._what_for(lease)}")
                reported_at = asked_at
            released = lease is not None and lease.is_released
            await asyncio.sleep(min(_LOOK_AT_RELEASED if released else _LOOK_EVERY, self._renew_every))

    async def stop_renewing(self) -> None:
        """Stop renewing the lease. If the lease is not released, the next gang must wait until it has expired."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if self._taking is not None:
            await asyncio.wait([self._taking])

    def _is_renewed(self, first: Lease, now: Lease) -> bool:
        """Return whether another gang of this job has renewed its lease since the first look."""
        is_same = (first.number, first.holder) == (now.number, now.holder) and first.changed_at != now.changed_at
        return is_same and not now.is_released and now.holder.job == self.me.job and now.holder.gang != self.me.gang

    def _may_take(self, lease: Lease, watched: float) -> bool:
        """Return whether this gang may take the lease: this gang has it already, or the holder's processes have ended.

        watched: how many seconds the lease has not changed, by this machine's clock
        """
        same_pod = not lease.is_released and self.me.uid != "" and lease.holder.uid == self.me.uid
        if lease.holder.gang == self.me.gang or same_pod:
            return True
        if not lease.is_released and watched < _RENEWALS_MISSED * self._renew_every:
            return False
        return max(lease.age, watched) >= lease.ends_within

    async def _renew(self) -> None:
        """Renew the lease until it is lost."""
        while True:
            await asyncio.sleep(self._renew_every)
            asked_at = time.monotonic()
            # If this process was stopped (SIGSTOP), try at least once more before the lease counts as lost.
            left = max(self._renewed_at + self._silence - asked_at, self._renew_every)
            why = ""
            try:
                if not await wait_within(LEASE.run(self._leases.renew, self._number, self.me), left):
                    self._lost(self._cause(CauseKind.TAKEN_OVER, await self._why_it_was_taken()))
                    return
                self._renewed_at = asked_at
            except asyncio.TimeoutError:
                pass
            except Exception as error:  # after any error, the lease was not renewed
                why = f": {error}"
            if time.monotonic() - self._renewed_at >= self._silence:
                what = (
                    f"the volume has not answered for {self._silence:g} s (LAUNCHER_SILENCE){why}; another gang may "
                    "take over the folder, so this gang ends: is the volume's server running?"
                )
                self._lost(self._cause(CauseKind.VOLUME, what))
                return

    async def _why_it_was_taken(self) -> str:
        try:
            lease = await self._from_volume(self._leases.latest)
        except Failure:
            lease = None
        if lease is None or lease.holder.gang == self.me.gang:
            return (
                "a member has lost the connection to this hub, and has released the lease of this gang: this gang "
                "ends, since another gang may begin"
            )
        if lease.fault:
            return f"{lease.fault}; another gang may train into this folder: this gang ends"
        holder = lease.holder
        return (
            f"the gang of pod {holder.pod}, job {holder.job}, has taken over the folder, since this gang was silent "
            "for too long: this gang ends"
        )

    def _cause(self, kind: CauseKind, what: str) -> Cause:
        return Cause(kind, 0, self.me.pod, what, Exit.IO_FAILED)

    def _what_for(self, lease: Lease) -> str:
        """Return for which gang this gang waits, and what the user can do."""
        holder = lease.holder
        if lease.fault:
            return (
                f"for the end of an unknown gang: {lease.fault}: remove this file if no gang trains into this folder. "
                f"Otherwise the lease expires {lease.ends_within:g} s after its last renewal"
            )
        if lease.is_released:
            within = f"which takes up to {lease.ends_within:g} s"
            return f"for the last processes of pod {holder.pod}'s gang to end, {within}"
        if holder.job == self.me.job:
            advice = "Was this job submitted twice, or is that pod cut off from the network?"
        else:
            advice = "If that job has the same JOB_NAME, delete that job, or give this job another name."
        return (
            f"for the end of another gang that trains into this folder: its hub is pod {holder.pod} of job "
            f"{holder.job}, last heard from {max(lease.age, 0):.0f} s ago. {advice} That gang counts as gone after "
            f"{lease.ends_within:g} s of silence"
        )
