"""The sizes of the generations, in trainers, and whether a generation has ended by a change of size."""

from __future__ import annotations

from collections.abc import Collection

from launcher.model import CauseKind


def vary(sizes: Collection[int | None]) -> bool:
    """Return whether two generations of these sizes had different sizes. None: not known."""
    return len({size for size in sizes if size is not None}) > 1


def is_resize(kind: object, size: int | None, next_size: int | None) -> bool:
    """Return whether a generation has ended because the job changed its size. This is no failure.

    The job has grown, or pods that were told to stop were not replaced. A pod that is lost is a failure.

    kind: of the first cause of the generation
    next_size: of the next generation; None if there is none yet
    """
    if kind == CauseKind.RESIZED:
        return True
    return kind == CauseKind.STOPPED and next_size is not None and vary((size, next_size))
