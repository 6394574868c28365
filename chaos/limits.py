"""How long a round may take: the sum of all documented timeouts. A longer round is a hang."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.nfs import LINES
from chaos.plan import FENCE, PEER_TIMEOUT, SILENCE, STOP_GRACE, Fault, Plan

FREEZES = frozenset({"freeze launcher", "freeze machine"})
SILENT = FREEZES | {"stop launcher", "cut", "cut outgoing", "cut incoming", "node off"}
DEATHS = frozenset({"kill trainer", "kill pserver", "term trainer", "term pserver"})
HANGS = frozenset({"hang trainer"})
LOSSES = frozenset({"kill launcher", "term launcher", "delete pod", "force delete pod"})
STALLS = frozenset({"volume stalled", "nfs node stalled"})
ON_VOLUME = STALLS | {"volume full", "volume read-only"}
ON_NFS = frozenset(LINES)
UNNOTICED = ON_NFS - STALLS  # the launchers try again

_START = 10.0  # seconds until a member has started and joined, on a busy machine
_EACH_MEMBER = 2.0  # seconds that each member adds to the start, since all members share two processors
_LONGEST_PAUSE = 32.0  # seconds before a restart, after six failures
_LEADS = 30.0  # seconds: two launchers cannot be reached for 5 s each, and are passed over for 10 s
_HELD = 30.0  # seconds for which a failure before the join waits for a gang, to report the failure to it
_BUSY = 4.0  # the factor by which a busy machine may slow down the training


def seconds(plan: Plan) -> float:
    """Return the longest time from the launch to the end of the last launcher."""
    return sum(value for _, value in parts(plan))


def parts(plan: Plan) -> Iterator[tuple[str, float]]:
    """Yield the parts of the limit, each with its reason."""
    start = _START + _EACH_MEMBER * plan.members
    yield "all members start and join", start
    # A pass takes longer with fewer trainers, since each has more shards.
    yield "training", _BUSY * plan.training * (plan.members if plan.begins else 1)
    yield "the last fault is over", max((fault.at + (fault.lasts or 0) for fault in plan.faults), default=0)
    for fault in plan.faults:
        yield from _of(fault, plan, start)
        if plan.begins:
            yield f"{fault.kind}: the members look for the one that leads, and settle", _LEADS + start
    if plan.faults:
        yield "a failure before the join waits for the gang", _HELD
        yield "members wait for missing members", max(PEER_TIMEOUT, plan.rejoin_timeout)
        yield "processes are ended", 2 * STOP_GRACE


def _of(fault: Fault, plan: Plan, start: float) -> Iterator[tuple[str, float]]:
    if fault.kind in SILENT:
        yield f"{fault.kind}: silence, the fence, and the members rejoin", SILENCE + FENCE + start
    if fault.kind in FREEZES:
        yield f"{fault.kind}: the woken launcher notices the loss and ends its processes", SILENCE + 2 * STOP_GRACE
    if fault.kind in LOSSES:
        yield f"{fault.kind}: a new pod starts, and the members rejoin", STOP_GRACE + start
    if fault.kind in ON_VOLUME:
        yield (
            f"{fault.kind}: the job waits for the volume and restarts",
            (fault.lasts or 0) + plan.volume_timeout + start,
        )
    if fault.kind in DEATHS | HANGS | ON_VOLUME:
        yield f"{fault.kind}: a pause, a restart, and the training since the last pass", _LONGEST_PAUSE / 2 + start
