"""The current time, as files and messages show it."""

import time


def utc_now() -> str:
    """Return the current time in UTC, such as `2026-11-19T11:10:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def stamp() -> str:
    """Return the current time in UTC with milliseconds, such as `2026-11-19T11:10:00.250Z`."""
    now = time.time_ns() // 1_000_000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 1000))}.{now % 1000:03}Z"
