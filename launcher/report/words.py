"""Format numbers and times for the page."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from launcher.base import clock as base_clock


def duration(seconds: float) -> str:
    """Return a duration as `clock.duration` does. Less than 10 s have a decimal, less than 1 s are milliseconds."""
    seconds = max(0.0, seconds)
    if seconds < 0.95:
        return f"{round(seconds, 2) * 1000:.0f} ms" if seconds else "0 s"
    return f"{seconds:.1f} s" if seconds < 9.95 else base_clock.duration(seconds)


def round_time(seconds: float) -> str:
    """Return the time of a tick, such as `30 s`, `2 min`, `1.5 h` or `3 d`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length and (seconds >= 2 * length or seconds % length == 0):
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"


def clock(at: float) -> str:
    """Return the time of day in UTC: `14:03:07`."""
    return _format(at, "%H:%M:%S")


def moment(at: float) -> str:
    """Return the date and the time of day: `2026-11-19 14:03:07 UTC`."""
    return _format(at, "%Y-%m-%d %H:%M:%S UTC")


def _format(at: float, pattern: str) -> str:
    try:
        return time.strftime(pattern, time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


def percent(share: float) -> str:
    """Return a share as `71 %`. A share below 1 is never shown as 100 %."""
    shown = math.floor(share * 100 + 0.5)
    if shown >= 100 and share < 1:
        shown = 99
    return "<1 %" if shown == 0 and share > 0 else f"{shown} %"


def quantity(value: float | None, digits: int = 3) -> str:
    """Return a number with a few digits: `12,400`, `512`, `3.14`, `0.00052`, `nan`."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.2e}"
    return f"{value:.{digits}g}"


def size(count: float | None) -> str:
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def names(members: Sequence[str], most: int = 4) -> str:
    """Return a list of names as text: `rank 1, rank 2 and rank 3`, or `rank 1, rank 2, rank 3 and 5 more`."""
    shown = list(members[:most]) if len(members) > most + 1 else list(members)
    if left := len(members) - len(shown):
        shown.append(f"{left} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def ranges(numbers: Iterable[int], most: int = 6) -> str:
    """Return numbers as ranges, with at most `most` parts: `0-3, 5, 7-9`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    shown = [f"{first}" if first == last else f"{first}\N{EN DASH}{last}" for first, last in parts[:most]]
    return ", ".join(shown + (["..."] if len(parts) > most else []))


def nice_step(span: float, parts: int) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that divides the span into at most `parts` parts."""
    if span <= 0 or not math.isfinite(span):
        return 1.0
    raw = span / max(1, parts)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


def time_step(span: float, parts: int) -> float:
    """Return a step of whole seconds, minutes, hours or days that divides the span into at most `parts` parts."""
    wanted = span / max(1, parts)
    if wanted < 1:
        return nice_step(span, parts)
    return next((float(step) for step in _STEPS if step >= wanted), math.ceil(wanted / 86_400) * 86_400.0)
