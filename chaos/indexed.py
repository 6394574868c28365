"""What Kubernetes does for an Indexed Job with the podFailurePolicy of k8s/job-indexed, without a Kubernetes."""

from __future__ import annotations

import time

from launcher.errors import FOR_GOOD, Exit

IGNORED = frozenset({int(Exit.PEER_FAILED), int(Exit.STOPPED)})
COMES_AFTER = 1.0  # seconds until a pod takes the place of one that has ended; Kubernetes waits longer


class IndexedJob:
    """Told of every end of a pod, it says which ranks get a new one now, and whether the job has failed."""

    def __init__(self, members: int, backoff_limit: int) -> None:
        self._backoff_limit = backoff_limit
        self._counted = 0
        self._due: dict[int, float] = {}
        self._done: set[int] = set()
        self._members = members
        self.failed = ""  # why

    @property
    def complete(self) -> bool:
        """Whether one pod of every rank has ended with 0."""
        return len(self._done) == self._members

    def ended(self, rank: int, code: int) -> None:
        """A pod has ended."""
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
        """The ranks whose next pod is to be made now."""
        now = time.monotonic()
        return [] if self.failed else [rank for rank, at in self._due.items() if at <= now]

    def made(self, rank: int) -> None:
        """Its next pod is there."""
        del self._due[rank]

    def _fail(self, why: str) -> None:
        self.failed = self.failed or why
