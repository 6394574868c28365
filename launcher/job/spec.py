"""The description of a job from YAML or from Python. The Kubernetes objects are made from this description alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher import __version__
from launcher.model import HETER, PSERVER, TRAINER, TRAINS

Json = dict[str, Any]

V0, PS, COLLECTIVE, SINGLE = "v0", "ps", "collective", "single"  # values of LAUNCHER_MODE
ON_FAILURE, ON_COMPLETION = "OnFailure", "OnCompletion"  # when `submit --watch` deletes a job
INJECT_IMAGE = f"paddle-launcher-inject:{__version__}"  # of docker/inject.Dockerfile; k8s/options/inject has the same
JOB_LABEL, ROLE_LABEL = "paddle-launcher/job", "paddle-launcher/role"
DOCTOR_LABEL = "paddle-launcher/doctor"  # on the Job and the pod of `doctor`, with the name of the job

MANAGED_BY = "app.kubernetes.io/managed-by"
_NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_LONGEST_POD_NAME = 63
_BACKOFF_LIMIT = 4


@dataclass(frozen=True)
class RoleSpec:
    """The pods of one role: one Indexed Job. `template` is the user's pod template, which is never changed."""

    role: str  # a role of launcher.model
    name: str  # the name of its Kubernetes Job
    replicas: int
    template: Mapping[str, Any]
    container: str  # the container of the template that trains or serves
    command: tuple[str, ...]  # what the launcher runs in that container

    @property
    def main_container(self) -> Json:
        """The container of the template that trains or serves."""
        containers: list[Json] = self.template["spec"]["containers"]
        return next(each for each in containers if each["name"] == self.container)


@dataclass(frozen=True)
class SecretSpec:
    """The Secret that only members of the gang know. `value` is None if the user has made the Secret."""

    name: str
    value: str | None


@dataclass(frozen=True)
class PodGroupSpec:
    """The PodGroup of Volcano to which all pods belong. `spec` is None if the user has made the PodGroup."""

    name: str
    spec: Mapping[str, Any] | None


@dataclass(frozen=True)
class JobSpec:
    """A job: its roles, and the settings that all roles have in common."""

    name: str
    namespace: str | None
    mode: str
    roles: tuple[RoleSpec, ...]
    gloo: int = 0  # PADDLE_WITH_GLOO
    host_network: bool = False
    secret: SecretSpec | None = None  # None: the secret is on a volume, or the job has one pod
    pod_group: PodGroupSpec | None = None
    ttl_seconds: int | None = None  # ttlSecondsAfterFinished; None: ended Jobs stay until they are deleted
    deleted: str | None = None  # ON_FAILURE or ON_COMPLETION; None: it stays
    max_restarts: int = 3
    sizes: tuple[int, int] | None = None  # elastic jobs: the fewest and the most pods that train
    launcher_image: str | None = INJECT_IMAGE  # the image to copy the launcher from; None: the role's own image has it
    volume_objects: tuple[Json, ...] = ()  # volumes and claims that belong to this job alone
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def pod_count(self) -> int:
        """The number of pods."""
        return sum(role.replicas for role in self.roles)

    @property
    def trainers(self) -> int:
        """The number of pods that train."""
        return sum(role.replicas for role in self.roles if role.role in TRAINS)

    @property
    def pservers(self) -> int:
        """The number of pods that run only a server."""
        return sum(role.replicas for role in self.roles if role.role == PSERVER)

    @property
    def heters(self) -> int:
        """The number of pods that are heter workers."""
        return sum(role.replicas for role in self.roles if role.role == HETER)

    @property
    def most_pods(self) -> int:
        """The number of pods that the job may have."""
        return self.pod_count - self.trainers + self.sizes[1] if self.sizes else self.pod_count

    @property
    def least_pods(self) -> int:
        """The number of pods without which the job cannot train."""
        return self.pod_count - self.trainers + self.sizes[0] if self.sizes else self.pod_count

    @property
    def backoff_limit(self) -> int:
        """How many failed pods each Job replaces. It is 0 if the job must not restart."""
        return _BACKOFF_LIMIT if self.max_restarts else 0

    @property
    def own_labels(self) -> Json:
        """The labels of every object of the job, by which the commands select these objects."""
        return {MANAGED_BY: "paddle-launcher", JOB_LABEL: self.name}

    @property
    def service(self) -> str | None:
        """The name of the headless Service, from which pods get DNS names. None for a job of one pod."""
        return self.name if self.most_pods > 1 else None

    @property
    def hub_address(self) -> str:
        """The value of LAUNCHER_SERVICE, by which the pods find the hub."""
        of_trainers = next((f"{TRAINER}={role.name}." for role in self.roles if role.role == TRAINER), "")
        return f"{of_trainers}{self.service}"

    def most_of(self, role_spec: RoleSpec) -> int:
        """Return how many pods the role may have."""
        return self.sizes[1] if self.sizes and role_spec.role in TRAINS else role_spec.replicas

    def on_host_network(self, role_spec: RoleSpec) -> bool:
        """Whether the role's pods use the network of their nodes, because of the job's setting or their template."""
        return self.host_network or bool(role_spec.template["spec"].get("hostNetwork"))


def mode(roles: Sequence[RoleSpec], *, elastic: bool = False) -> str:
    """Return the LAUNCHER_MODE of a job with these roles."""
    if any(role.role == PSERVER for role in roles):
        return PS
    return SINGLE if sum(role.replicas for role in roles) == 1 and not elastic else COLLECTIVE


def name_problems(name: str, jobs: Iterable[tuple[str, int]]) -> list[str]:
    """Return what is wrong with a job's name; `jobs` are the names of its Kubernetes Jobs, each with its replicas."""
    if not re.fullmatch(_NAME, name):
        return [
            f"{name!r}: expected lower-case letters, digits and -, starting with a letter, not ending with -: "
            "a Service gets this name"
        ]
    problems = []
    for job, replicas in jobs:
        pod = f"{job}-{max(replicas, 1) - 1}"
        if (excess := len(pod) - _LONGEST_POD_NAME) > 0:
            problems.append(
                f"{name!r}: too long by {excess}: its last pod would be called {pod!r}, and "
                f"{_LONGEST_POD_NAME} characters are allowed"
            )
    return problems
