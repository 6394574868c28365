"""For how long children of members may still run once a gang is over, as far as its hub can know."""

from __future__ import annotations

import time
from collections.abc import Iterable

from launcher.gang.events import GangSettings
from launcher.gang.seats import Seat

END_WITHIN = 2.0  # seconds for children that need not save any more, as after a failure


def may_run_for(seats: Iterable[Seat], settings: GangSettings) -> float:
    """Seconds, at most; 0 once all have said that they have ended theirs."""
    now = time.monotonic()
    return max([0.0, *(_ends_by(seat, settings) - now for seat in seats if not seat.stopped)])


def still_end(seats: Iterable[Seat], settings: GangSettings) -> bool:
    """Whether there are members that are heard, and have not yet said that they have ended theirs; never the hub's."""
    return any(not seat.stopped and seat.connection and not is_cut_off(seat, settings) for seat in seats)


def is_silent(seat: Seat, settings: GangSettings) -> bool:
    """Whether a member may still be there, beyond a cut of the network, and its children with it."""
    return not seat.stopped and (seat.silent or is_cut_off(seat, settings))


def is_cut_off(seat: Seat, settings: GangSettings) -> bool:
    """Whether nothing is heard of a member whose connection has not ended."""
    return seat.connection is not None and seat.connection.is_cut_off(settings.alive_every)


def _ends_by(seat: Seat, settings: GangSettings) -> float:
    """Dead, unless it returns. Or it was not heard, has not heard the hub for as long, and gives it up as well."""
    if seat.ended_at is not None and not seat.silent:
        return seat.ended_at + settings.return_within
    heard_at = seat.ended_at if seat.connection is None else seat.connection.heard_at
    return (heard_at or time.monotonic()) + settings.silence + settings.ends_within
