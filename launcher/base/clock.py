"""The current time, as files and messages show it."""

import time


def utc_now() -> str:
    """Return the current time in UTC, such as `2026-11-19T11:10:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
