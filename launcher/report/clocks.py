"""Correct the times of launchers whose node's clock was set while they ran."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.report import fields
from launcher.store.events import Event

_MOST = 1e9  # seconds, 30 years


def shifts(found: Iterable[Event]) -> list[float]:
    """Return, for each event of one file, the seconds to add to its times: as if the clock had been right before.

    After a clock was set, it is right: NTP sets clocks. The `ended` of an earlier launcher limits what is corrected,
    since another launcher may have run on another node.
    """
    each: list[float] = []
    changes = []  # place of each `ended` and `clock_set`, with the seconds of the latter
    for place, event in enumerate(found):
        each.append(0.0)
        if event["event"] in ("ended", "clock_set"):
            seconds = fields.decimal(event, "seconds") or 0.0
            changes.append((place, seconds if abs(seconds) < _MOST else 0.0, event["event"] == "ended"))
    added, end = 0.0, len(each)
    for place, seconds, is_end in reversed(changes):
        each[place + 1 : end] = [added] * (end - place - 1)
        added = 0.0 if is_end else added
        each[place], end = added, place
        added += 0.0 if is_end else seconds
    each[:end] = [added] * end
    return each
