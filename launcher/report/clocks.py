"""Correct the times of launchers whose node's clock was set while they ran."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.report import fields
from launcher.store.events import Event

_MOST = 1e9  # seconds, 30 years


def shifts(found: Sequence[Event]) -> list[float]:
    """Return, for each event of one file, the seconds to add to its times: as if the clock had been right before.

    After a clock was set, it is right: NTP sets clocks. The `ended` of an earlier launcher limits what is corrected,
    since another launcher may have run on another node.
    """
    added, each = 0.0, [0.0] * len(found)
    for place in range(len(found) - 1, -1, -1):
        event = found[place]
        if event["event"] == "ended":
            added = 0.0
        each[place] = added
        if event["event"] == "clock_set":
            seconds = fields.decimal(event, "seconds") or 0.0
            added += seconds if abs(seconds) < _MOST else 0.0
    return each
