"""A simulation of an Indexed Job with the podFailurePolicy of k8s/job-indexed, without Kubernetes."""

from __future__ import annotations

import time

from launcher.errors import FOR_GOOD, Exit

IGNORED = frozenset({int(Exit.PEER_FAILED), int(Exit.STOPPED)})
COMES_AFTER = 1.0  # seconds until an ended pod is replaced; Kubernetes waits longer


class IndexedJob:
    """The Job controller. It decides after each end of a pod which ranks get a new pod, and whether the job fails."""

    def __init__(self, members: int, backoff_limit: int) -> None:
        self._backoff_limit = backoff_limit
        self._counted = 0
        self._due: dict[int, float] = {}
        self._done: set[int] = set()
        self._members = members
        self.failed = ""  # the reason, or ""

    @property
    def complete(self) -> bool:
        """Whether one pod of each rank has ended with 0."""
        return len(self._done) == self._members

    def ended(self, rank: int, code: int) -> None:
        if code == Exit.COMPLETE:
            self._done.add(rank)
            return
        if code in FOR_GOOD:
            self._fail(f"rank {rank} ended with {code}")
        elif code not in IGNORED:
            self._counted += 1
            if self._counted > self._backoff_limit:
                self._fail(f"{self._counted} pods have failed")
        self._due[rank] = time.monotonic() + COMES_AFTER

    def due(self) -> list[int]:
        """Return the ranks that need a new pod now."""
        now = time.monotonic()
        return [] if self.failed else [rank for rank, at in self._due.items() if at <= now]

    @property
    def members(self) -> int:
        return self._members

    def grow(self) -> None:
        """Raise the number of completions: another rank gets a pod."""
        self._due[self._members] = time.monotonic()
        self._members += 1

    def shrink(self) -> int:
        """Lower the number of completions, and return the rank that is not needed any more."""
        self._members -= 1
        self._due.pop(self._members, None)
        self._done.discard(self._members)
        return self._members

    def made(self, rank: int) -> None:
        """Note that the new pod of this rank was made."""
        del self._due[rank]

    def _fail(self, why: str) -> None:
        self.failed = self.failed or why
