"""The cause that names a lost member."""

from __future__ import annotations

from launcher.errors import Exit
from launcher.model import Cause, CauseKind, Shape


def lost_member(shape: Shape, rank: int, pod: str, reason: str, *, silent: bool) -> Cause:
    """Return the cause.

    silent: nothing arrived from the member, but it did not close its connection: it may still run behind a network cut
    """
    name = f"{shape.name(rank)} (pod {pod})" if rank else f"the hub, {shape.name(0)} (pod {pod}),"
    what = (
        f"{name} was lost without a message: {reason}; was its pod deleted, out of memory, or is its node gone? "
        f"Check `kubectl describe pod {pod}`"
    )
    return Cause(CauseKind.LOST, rank, pod, what, Exit.PEER_LOST, silent=silent)


def early_leaver(shape: Shape, rank: int, pod: str) -> Cause:
    """Return the cause for a member that has stopped before the hub sent a verdict."""
    what = f"{shape.name(rank)} (pod {pod}) received no decision from the hub in time, and left"
    return Cause(CauseKind.LOST, rank, pod, what, Exit.PEER_LOST)
