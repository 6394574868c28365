"""On the hub: which members cannot reach each other, although both reach the hub."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace

from launcher.base.host import host_port
from launcher.gang import messages
from launcher.gang.events import GangSettings
from launcher.gang.protocol import Malformed, Message
from launcher.gang.seats import Seat, Seats
from launcher.model import Cause, CauseKind

log = logging.getLogger(__name__)

_MAX_NAMED = 3
_EXPLAINED = (CauseKind.TRAINER, CauseKind.PSERVER, CauseKind.HETER, CauseKind.STALLED, CauseKind.LOST)


class Cuts:
    """Name each pair in the log, and in the cause of a failure that it may explain. Decide nothing.

    Only the processes of the job know whether they need this connection.

    seats: the seats of all members in rank order
    """

    def __init__(self, settings: GangSettings, seats: Seats) -> None:
        self._settings = settings
        self._seats = seats
        self._reported: dict[tuple[int, int], tuple[float, str]] = {}  # by the ranks of a pair: when, and in words

    def on_unreached(self, seat: Seat, message: Message) -> None:
        """Take the report of a member that did not reach another member."""
        rank, age, reason = messages.read_unreached(message)
        if rank >= len(self._seats) or rank == seat.rank:
            raise Malformed("rank")
        other = self._seats[rank]
        if age < self._settings.silence or min(self._heard_for(seat), self._heard_for(other)) < self._settings.silence:
            return
        shape, place = self._seats.shape, host_port(other.member.address, self._settings.port)
        pair = f"{shape.name(seat.rank)} cannot reach {shape.name(rank)} at {place}"
        if not self._is_recent((seat.rank, rank)):
            log.warning(
                f"{pair}: {reason} for {age:.0f} s, but both reach the hub: check network policies between these pods "
                f"({seat.member.pod}, {other.member.pod}) and between their nodes"
            )
        self._reported[seat.rank, rank] = time.monotonic(), f"{pair} ({reason})"

    def explain(self, cause: Cause) -> Cause:
        """Return the cause, with the pairs that cannot reach each other now, if they may have caused the failure."""
        recent = [words for pair, (_, words) in self._reported.items() if self._is_recent(pair)]
        if not recent or cause.kind not in _EXPLAINED:
            return cause
        more = f" and {len(recent) - _MAX_NAMED} more pairs" if len(recent) > _MAX_NAMED else ""
        named = ", ".join(recent[:_MAX_NAMED]) + more
        return replace(cause, what=f"{cause.what}; {named}: check network policies between these nodes")

    def _is_recent(self, pair: tuple[int, int]) -> bool:
        """Return whether a report is so new that a later check has not contradicted it."""
        reported_at, _ = self._reported.get(pair, (-math.inf, ""))
        return time.monotonic() - reported_at < 2 * self._settings.check_every

    def _heard_for(self, seat: Seat) -> float:
        """Return for how many seconds the hub has heard this member without a gap."""
        if seat is self._seats[0]:
            return math.inf
        if seat.connection is None or seat.is_cut_off(self._settings):
            return 0.0
        return time.monotonic() - max(seat.connected_at, seat.connection.unsure_at)
