"""What a gang must offer so that a round can be played with it: on this machine, or as pods on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from chaos.plan import Fault, Plan


@dataclass(frozen=True)
class End:
    """How one pod ended. Those that came in its place have ends of their own."""

    rank: int
    pod: str
    code: int  # as a shell shows it: 137 for one that was killed
    termination: str  # what it wrote where Kubernetes expects it
    last: str  # its last line on standard error
    struck: bool = False  # a fault has killed it: it could say nothing


@dataclass
class Frozen:
    """A launcher that was stopped for longer than the others wait for it; nanoseconds, by the clock of the stamps."""

    pod: str
    since: int
    until: int
    replaced: bool = False  # another pod has taken its place meanwhile


class Arena(Protocol):
    """One gang of one round, from an empty folder on the volume to its end."""

    left_out: Mapping[str, str]  # the kinds of faults that cannot be done here, each with what is missing

    folder: Path  # the job's folder on the volume, readable on this host
    stamps: Path  # where the trainers leave STANDIN_STAMPS; on the volume only where nothing else can be shared
    job_id: str  # the identity: the name of its folder below output/.launcher

    def __init__(self, data: Path) -> None:
        """`data`: where what the rounds train on is kept, a volume for each size."""

    def __enter__(self) -> Arena: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""

    def start(self, plan: Plan) -> None:
        """A volume with shards, and all members, started at once."""

    def do(self, fault: Fault) -> str:
        """What was done, for people; nothing where there was nobody to do it to."""

    def undo(self, fault: Fault) -> None:
        """End what lasts. Also of what was never done, or was undone before."""

    def step(self) -> None:
        """Called every 50 ms: makes new pods for those that failed, where there is no Kubernetes to do it."""

    def ended(self) -> Sequence[End] | None:
        """Every pod that has ended, in order, once the job is over; None while it is not."""

    def complete(self) -> bool:
        """Whether the Job counts as complete: one pod of every rank has ended with 0."""

    def said(self) -> str:
        """The standard error of all launchers there were, each behind its pod's name."""

    def frozen(self) -> Sequence[Frozen]:
        """The launchers that were frozen for so long that the others went on."""

    def left(self) -> list[str]:
        """Processes, mounts and pods that should be gone, once the job is over."""

    def close(self) -> None:
        """Undo everything and remove it. Also after a failure in the middle, and more than once."""
