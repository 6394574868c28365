"""Times as files and messages show them."""

import time

_SET = 1.0  # seconds


def utc_now() -> str:
    """Return the current time in UTC, such as `2026-11-19T11:10:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def stamp() -> str:
    """Return the current time in UTC with milliseconds, such as `2026-11-19T11:10:00.250Z`."""
    now = time.time_ns() // 1_000_000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 1000))}.{now % 1000:03}Z"


class WallClock:
    """Notices that the clock of this machine was set. Time in which the machine sleeps is no change."""

    def __init__(self) -> None:
        self._ahead = self._now_ahead()

    def change(self) -> float:
        """Return by how many seconds the clock was set since the last change, or 0.0 if by less than a second."""
        ahead = self._now_ahead()
        changed = ahead - self._ahead
        if abs(changed) < _SET:
            return 0.0
        self._ahead = ahead
        return changed

    def _now_ahead(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def duration(seconds: float) -> str:
    """Return `7 s`, `3 min 05 s`, `2 h 07 min` or `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
