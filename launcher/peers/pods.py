"""A pod as the finder needs it, and the view that a launcher has of its job's pods. Known to child and launcher."""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.roles import BOTH

LIVE = "live"  # its own container runs, is about to, or will be started again
LEAVING = "leaving"  # being deleted
ENDED = "ended"  # its own container is over for good, whatever sidecars do


@dataclass(frozen=True)
class Pod:
    """One pod of the selection. `why` says what holds it up or how it ended; `job` is what controls it."""

    uid: str
    name: str
    state: str
    address: str
    number: int | None
    job: str | None
    created: str
    why: str
    role: str = BOTH  # as its own container is told
    code: int | None = None  # with which its own container has ended


@dataclass
class View:
    """What a launcher knows of the pods: `listed` once complete, `whole` if it is more than the hub and itself."""

    pods: dict[str, Pod] = field(default_factory=dict)
    me: str | None = None
    listed: bool = False
    whole: bool = True
    trouble: str = ""
