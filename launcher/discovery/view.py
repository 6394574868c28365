"""What a launcher knows about the pods of its job."""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.base.kube_pods import Pod


@dataclass
class View:
    """The known pods, by uid.

    own: the uid of this pod, or None until it is known
    is_listed: whether the first list is complete
    has_all: whether the view has all pods of the job, not only this pod and the pods with number 0
    trouble: the last error of the API server, or "" if the API server answers
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    own: str | None = None
    is_listed: bool = False
    has_all: bool = True
    trouble: str = ""
