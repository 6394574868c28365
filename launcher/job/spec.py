"""What a job is, whatever it was described in: the one thing that Kubernetes objects are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.model import PSERVER, TRAINER

Json = dict[str, Any]

PS, COLLECTIVE, SINGLE = "ps", "collective", "single"  # values of LAUNCHER_MODE
INJECTED = "paddle-launcher-inject:latest"  # of docker/inject.Dockerfile, as k8s/options/inject has it

_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_LONGEST = 63
_BACKOFF_LIMIT = 4


@dataclass(frozen=True)
class RoleSpec:
    """Pods that all do the same, each with a number: one Indexed Job. The template is the user's, and never changed."""

    kind: str  # of launcher.model
    job: str  # the Job's name
    replicas: int
    template: Mapping[str, Any]
    container: str  # the one of the template that trains, or serves
    command: tuple[str, ...]  # what it runs below the launcher


@dataclass(frozen=True)
class SecretSpec:
    """What keeps strangers out of the gang, as a Kubernetes Secret; without a value it is there already."""

    name: str
    value: str | None


@dataclass(frozen=True)
class PodGroupSpec:
    """A PodGroup of Volcano's, in which all pods are; without a specification it is there already."""

    name: str
    spec: Mapping[str, Any] | None


@dataclass(frozen=True)
class JobSpec:
    """A job: its members by role, and what they have in common."""

    name: str
    namespace: str | None
    mode: str
    roles: tuple[RoleSpec, ...]
    gloo: int = 0  # PADDLE_WITH_GLOO
    host_network: bool = False
    secret: SecretSpec | None = None  # None: a volume has it, or the job is of one
    group: PodGroupSpec | None = None
    seconds_kept: int | None = None  # how long a Job stays when it has ended; None: until somebody deletes it
    max_restarts: int = 3
    launcher: str | None = INJECTED  # the image that brings the launcher along; None: the role's own image has it
    volumes: tuple[Json, ...] = ()  # objects for the volumes of the pods, that nobody but this job has
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> int:
        """How many pods there are."""
        return sum(role.replicas for role in self.roles)

    @property
    def trainers(self) -> int:
        """How many of them train."""
        return sum(role.replicas for role in self.roles if role.kind != PSERVER)

    @property
    def pservers(self) -> int:
        """How many of them only serve."""
        return self.members - self.trainers

    @property
    def backoff_limit(self) -> int:
        """How many failed pods a Job replaces. A job that is not to start again does not do so in new pods either."""
        return _BACKOFF_LIMIT if self.max_restarts else 0

    @property
    def service(self) -> str | None:
        """The headless Service that gives the pods their names; a job of one needs none."""
        return self.name if self.members > 1 else None

    def on_nodes(self, role: RoleSpec) -> bool:
        """Whether the role's pods use the network of their nodes, as all were told or their template says."""
        return self.host_network or bool(role.template["spec"].get("hostNetwork"))

    @property
    def hub(self) -> str:
        """LAUNCHER_SERVICE: where the member that leads is found."""
        by_role = next((f"{TRAINER}={role.job}." for role in self.roles if role.kind == TRAINER), "")
        return f"{by_role}{self.service}"


def mode(roles: Sequence[RoleSpec]) -> str:
    """How a job of these roles trains."""
    if any(role.kind == PSERVER for role in roles):
        return PS
    return SINGLE if sum(role.replicas for role in roles) == 1 else COLLECTIVE


def name_problems(name: str, jobs: Iterable[tuple[str, int]]) -> list[str]:
    """What is wrong with the name of a gang, given the names of its Jobs and how many pods each of them has."""
    if not re.fullmatch(_LABEL, name):
        return [
            f"{name!r}: expected small letters, digits and -, a letter first and no - at the end: "
            "a Service has that name"
        ]
    problems = []
    for job, replicas in jobs:
        last = f"{job}-{max(replicas, 1) - 1}"
        if (more := len(last) - _LONGEST) > 0:
            problems.append(f"{name!r}: expected a name shorter by {more}: {last!r}, a pod's, may have {_LONGEST}")
    return problems
