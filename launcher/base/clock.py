"""Times as files and messages show them."""

import time


def utc_now() -> str:
    """Return the current time in UTC, such as `2026-11-19T11:10:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def stamp() -> str:
    """Return the current time in UTC with milliseconds, such as `2026-11-19T11:10:00.250Z`."""
    now = time.time_ns() // 1_000_000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 1000))}.{now % 1000:03}Z"


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
