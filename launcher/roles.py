"""Who does what in a job: both in each pod, or one role a pod. People count members within a role, the gang through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BOTH, TRAINER, PSERVER = "both", "trainer", "pserver"
OTHER = {TRAINER: PSERVER, PSERVER: TRAINER}


@dataclass(frozen=True)
class Shape:
    """How many members a job has: those that train, and those that only serve. Trainers have the first ranks."""

    trainers: int
    pservers: int = 0  # 0: there are no roles, each member does both

    @property
    def size(self) -> int:
        """All members."""
        return self.trainers + self.pservers

    def count(self, role: str) -> int:
        """The members of one role."""
        return self.pservers if role == PSERVER else self.trainers

    def rank(self, role: str, number: int) -> int:
        """The rank in the gang of a member with this number within its role."""
        return self.trainers + number if role == PSERVER else number

    def role(self, rank: int) -> str:
        """What the member with this rank does."""
        if not self.pservers:
            return BOTH
        return TRAINER if rank < self.trainers else PSERVER

    def number(self, rank: int) -> int:
        """The member's number within its role."""
        return rank if rank < self.trainers or not self.pservers else rank - self.trainers

    def name(self, rank: int) -> str:
        """The member with this rank, for people."""
        return called(self.role(rank), self.number(rank))

    def names(self, ranks: Sequence[int]) -> str:
        """Several members: `rank 1, 2`, or `trainer 1, pserver 0`."""
        if not self.pservers:
            return called(BOTH, ", ".join(map(str, ranks)))
        return ", ".join(map(self.name, ranks))


def called(role: str, number: object) -> str:
    """`rank 1` where all do the same, else `trainer 1` or `pserver 0`."""
    return f"{'rank' if role == BOTH else role} {number}"


def folder(role: str, number: object) -> str:
    """Where the member's logs and status go, below the job's output."""
    return f"{'pserver' if role == PSERVER else 'node'}_{number}"
