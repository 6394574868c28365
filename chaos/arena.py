"""The interface to the gang of one round. The gang runs on this machine, or as pods on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from chaos.plan import Fault, Plan


@dataclass(frozen=True)
class End:
    """How one pod ended. Each pod that replaces it has its own End."""

    rank: int
    pod: str
    code: int  # as in a shell: 137 if the launcher was killed
    termination: str  # the termination message
    last: str  # the last line on the launcher's standard error
    struck: bool = False  # a fault has killed the launcher, so it could not write a message


@dataclass
class Frozen:
    """A launcher that was frozen for longer than the other launchers wait for it. In ns, by the clock of the stamps."""

    pod: str
    since: int
    until: int
    replaced: bool = False  # another pod has replaced it meanwhile


class Arena(Protocol):
    """The gang of one round, from an empty output folder to the end of the job."""

    left_out: Mapping[str, str]  # the kinds of faults that are not possible here, each with the reason

    folder: Path  # the job's folder on the volume, readable on this host
    stamps: Path  # the file for the trainers' stamps, STANDIN_STAMPS; not on the volume, which has faults
    job_id: str  # the job's identity: the name of its folder below output/.launcher

    def __init__(self, data: Path) -> None:
        """`data`: the folder in which the data sets of all rounds are kept, one for each size."""

    def __enter__(self) -> Arena: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""

    def start(self, plan: Plan) -> None:
        """Make a volume with shards, and start all members at once."""

    def do(self, fault: Fault) -> str:
        """Inject a fault. Return what was done, for messages, or "" if the fault had no victim."""

    def undo(self, fault: Fault) -> None:
        """End a fault that lasts. Do nothing if the fault was never injected or is already undone."""

    def step(self) -> None:
        """Replace failed pods, unless Kubernetes does this. Called every 50 ms."""

    def ended(self) -> Sequence[End] | None:
        """Return the ends of all pods, in order, or None if the job is not over yet."""

    def complete(self) -> bool:
        """Return whether the Job is complete: one pod of each rank has ended with 0."""

    def said(self) -> str:
        """Return the standard error of all launchers, each after the name of its pod."""

    def frozen(self) -> Sequence[Frozen]:
        """Return the launchers that were frozen for longer than the other launchers wait."""

    def left(self) -> list[str]:
        """Return the processes, mounts and pods that still exist. After the job there should be none."""

    def close(self) -> None:
        """Undo all faults and remove the gang. May be called after any failure, and more than once."""
