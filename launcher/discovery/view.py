"""What a launcher knows of its job's pods."""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.base.kube_pods import Pod


@dataclass
class View:
    """The pods by their uids.

    own: the uid of this pod, once known
    is_listed: the first list is complete
    has_all: it has all pods of the job; else only this pod and those with number 0
    trouble: the last error of the API server, while it lasts
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    own: str | None = None
    is_listed: bool = False
    has_all: bool = True
    trouble: str = ""
