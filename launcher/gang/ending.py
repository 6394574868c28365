"""The end of a gang, on its hub: who leaves first, and when no process of the gang can run any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from launcher.base.aio import wait_within
from launcher.gang import messages
from launcher.gang.events import GangSettings
from launcher.gang.protocol import Message
from launcher.gang.seats import Seat
from launcher.model import Cause, CauseKind

FAILURE_END_WITHIN = 2.0  # seconds in which processes end after a failure, since they save nothing


class Ending:
    """Send stop if the job has failed. Send finish when all members may leave.

    seats: the seats of all members in rank order; empty until the roster is complete
    """

    def __init__(self, settings: GangSettings, seats: Sequence[Seat], broadcast: Callable[[Message], None]) -> None:
        self._settings = settings
        self._seats = seats
        self._broadcast = broadcast
        self.cause: Cause | None = None  # why the gang was stopped
        self._rejoin = False  # whether the members join a new gang after the stop
        self._stopped_at = 0.0
        self.finished = False
        self._finish_timer: asyncio.TimerHandle | None = None
        self._others_have_ended = asyncio.Event()

    def current_state(self) -> list[Message | None]:
        """Return the messages that tell a reconnected member how the gang ends."""
        return [
            messages.stop(self.cause, self._rejoin) if self.cause else None,
            messages.finish() if self.finished else None,
        ]

    def stop(self, cause: Cause, *, rejoin: bool) -> None:
        """Stop the gang: all members end their processes, and leave or rejoin."""
        self.cause, self._rejoin = cause, rejoin
        self._stopped_at = time.monotonic()
        self._broadcast(messages.stop(cause, rejoin))
        if rejoin:
            self._finish_when_all_have_ended()
            return
        culprit = self._culprit()
        if culprit is None or culprit.ended_at is not None or culprit.stopped:
            self.finish()
        elif cause.kind is not CauseKind.STOPPED:  # a member that got SIGTERM may use its whole grace period
            asyncio.get_running_loop().call_later(self._settings.leave_within, self.finish)

    def finish(self, after: float = 0.0) -> None:
        """Let all members leave, or rejoin, after `after` seconds."""
        if not self.finished:
            self.finished = True
            self._broadcast(messages.finish(after))

    def _culprit(self) -> Seat | None:
        """Return the seat of the member whose failure is the first cause. None if the cause names no member."""
        rank = self.cause.rank if self.cause else None
        return self._seats[rank] if rank is not None and rank < len(self._seats) else None

    def after_leaving(self, seat: Seat) -> None:
        """Check whether the others may leave, after a member has sent stopped or its connection has ended."""
        if self.cause is None:
            return
        if not self._others_are_ending():
            self._others_have_ended.set()
        if self._rejoin:
            self._finish_when_all_have_ended()
        elif seat is self._culprit():
            self.finish()

    def _finish_when_all_have_ended(self) -> None:
        """Finish once no process of the gang can run any more. An unreachable member ends its own in a known time."""
        if self._finish_timer:
            self._finish_timer.cancel()
        left = self._remaining_run_time(self._seats)
        if left > 0:
            # Then look again: a member whose connection had ended may have reconnected, and still end its processes.
            self._finish_timer = asyncio.get_running_loop().call_later(left, self._finish_when_all_have_ended)
        else:
            self.finish()

    async def wait_others_ended(self) -> None:
        """After a stop, wait until every other member has ended its processes, is lost, or is cut off."""
        while self._others_are_ending():
            self._others_have_ended.clear()
            try:
                await wait_within(self._others_have_ended.wait(), self._settings.reconnect_within)
            except asyncio.TimeoutError:
                continue  # a member that is cut off, or has not reconnected, is not waited for

    def _others_are_ending(self) -> bool:
        return any(seat.is_ending(self._settings) for seat in self._seats)

    def remaining_run_time(self) -> float:
        """After a finish or a stop, return for how many seconds at most a process of the gang can still run."""
        ending = 0.0
        if self.cause and self._others_are_ending():
            orderly = self.cause.kind is CauseKind.STOPPED or any(
                seat.told_to_stop and not seat.stopped for seat in self._seats
            )
            grace = self._stopped_at + self._settings.grace - time.monotonic() if orderly else 0.0
            ending = FAILURE_END_WITHIN + max(grace, 0.0)
        unreachable = [seat for seat in self._seats if seat.is_unreachable(self._settings)]
        return max(ending, self._remaining_run_time(unreachable))

    def _remaining_run_time(self, seats: Sequence[Seat]) -> float:
        return max((seat.remaining_run_time(self._settings) for seat in seats), default=0.0)

    def close(self) -> None:
        """Send finish, if the gang was stopped. After this call, no timer sends finish."""
        if self.cause:
            self.finish(self.remaining_run_time() if self._rejoin else 0.0)
        if self._finish_timer:
            self._finish_timer.cancel()
