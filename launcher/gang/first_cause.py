"""Name the first of several failures. Processes that lose a peer die within milliseconds of it."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.model import Cause, CauseKind

TOLERANCE = 0.05  # seconds by which the order of two deaths in different pods can be wrong

_SIGPIPE = 141
_PSERVER_SURVIVORS = (134,)
_TRAINER_SURVIVORS = (134, 139)


def first_cause(reports: Iterable[tuple[float, Cause]]) -> tuple[float, Cause]:
    """Return the oldest report, as (time of death, cause), once each death has its survivor penalty added."""
    return min(reports, key=lambda report: report[0] + survivor_penalty(report[1]))


def survivor_penalty(cause: Cause) -> float:
    """Return the seconds by which a death must be older than an independent one to count as the first cause.

    It is 0 unless the exit code is one with which processes die when they lose a peer:
    - 141 (SIGPIPE): any process that writes to a dead peer. It is never the first cause: its penalty is the highest.
    - 134 (SIGABRT): a pserver or a trainer. A trainer's is higher, since the abort of a pserver kills all trainers.
    - 139 (SIGSEGV): a trainer. No pserver was ever seen to die of a lost peer in this way.
    """
    if not cause.kind.is_child:
        return 0.0
    if cause.code == _SIGPIPE:
        return 2 * TOLERANCE
    if cause.kind is CauseKind.PSERVER:
        return TOLERANCE if cause.code in _PSERVER_SURVIVORS else 0.0
    return 1.5 * TOLERANCE if cause.code in _TRAINER_SURVIVORS else 0.0
