"""Which of several failures was the first cause. Survivors of a dead peer die within milliseconds of it."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.model import CHILDREN, Cause

NEAR = 0.05  # seconds: how far the order of two deaths in different pods can be mistaken

_SIGPIPE = 141
_OF_A_PSERVER = (134,)
_OF_A_TRAINER = (134, 139)


def first_cause(reports: Iterable[tuple[float, Cause]]) -> tuple[float, Cause]:
    """The first cause with its time of death: the oldest one, once each has the handicap of what its code says."""
    return min(reports, key=lambda report: report[0] + handicap(report[1]))


def handicap(cause: Cause) -> float:
    """By how much a death must be older than one with a cause of its own to count as the first.

    A survivor aborts (134, and SIGABRT is nothing else), a surviving trainer also crashes (139), and whoever
    writes to a dead peer dies of SIGPIPE (141), which therefore is never the beginning. A pserver's abort counts
    for a little more than a trainer's, since it kills all trainers. Exit codes like 3, SIGKILL, a lost launcher and
    a pserver's 139 (none was seen to survive that way) are causes of their own.
    """
    if cause.kind not in CHILDREN:
        return 0.0
    if cause.code == _SIGPIPE:
        return 2 * NEAR
    if cause.kind == "pserver":
        return NEAR if cause.code in _OF_A_PSERVER else 0.0
    return 1.5 * NEAR if cause.code in _OF_A_TRAINER else 0.0
