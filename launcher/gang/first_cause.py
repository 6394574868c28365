"""Choose the first cause among several failures. A process that loses a peer dies milliseconds after that peer."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.model import Cause, CauseKind

TOLERANCE = 0.05  # seconds by which the order of two deaths in different pods can be wrong

_SIGPIPE = 141
_PSERVER_SURVIVORS = (134,)
_TRAINER_SURVIVORS = (134, 139)


def first_cause(reports: Iterable[tuple[float, Cause]]) -> tuple[float, Cause]:
    """Add to each time of death its penalty. Return the report with the earliest sum, as (time of death, cause)."""
    return min(reports, key=lambda report: report[0] + survivor_penalty(report[1]))


def survivor_penalty(cause: Cause) -> float:
    """Return how many seconds older than an independent death this death must be to count as the first cause.

    The penalty is 0, except for these exit codes of processes that lose a peer:
    - 141 (SIGPIPE): any process that writes to a dead peer. Such a death follows another one: the highest penalty.
    - 134 (SIGABRT): a pserver or a trainer. Higher for a trainer, since the abort of a pserver kills all trainers.
    - 139 (SIGSEGV): a trainer. A pserver was never seen to die in this way because of a lost peer.
    """
    if not cause.kind.is_child:
        return 0.0
    if cause.code == _SIGPIPE:
        return 2 * TOLERANCE
    if cause.kind is CauseKind.PSERVER:  # a heter worker dies like a trainer
        return TOLERANCE if cause.code in _PSERVER_SURVIVORS else 0.0
    return 1.5 * TOLERANCE if cause.code in _TRAINER_SURVIVORS else 0.0
