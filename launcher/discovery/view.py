"""The view that a launcher has of its job's pods."""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.base.kube_pods import Pod


@dataclass
class View:
    """What a launcher knows of the pods: `listed` once complete, `whole` if it is more than the hub and itself."""

    pods: dict[str, Pod] = field(default_factory=dict)
    me: str | None = None
    listed: bool = False
    whole: bool = True
    trouble: str = ""
