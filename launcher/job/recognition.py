"""Which Jobs and StatefulSets of a cluster run the launcher, and what they say about their job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.base import kube_pods
from launcher.config.variables import VARIABLES
from launcher.job.spec import COLLECTIVE, DOCTOR_LABEL, JOB_LABEL, MANAGED_BY, PS, ROLE_LABEL, SINGLE
from launcher.job.state import COMPLETE, FAILED, SUSPENDED, end_phase
from launcher.model import BOTH, TRAINS

Json = dict[str, Any]

_LAUNCHER = "paddle-launcher"
_PROGRAMS = (_LAUNCHER, "start_paddle.py")
_OWN = frozenset(
    variable.name for variable in VARIABLES if variable.name.startswith(("LAUNCHER_", "CONF_PADDLE_"))
)  # other programs may have variables such as JOB_NAME, too


@dataclass(frozen=True)
class Workload:
    """One Job or StatefulSet that runs the launcher.

    seen: the object of the API
    env: the variables of the main container that have a value in the pod template
    words: its command and arguments
    """

    kind: str
    seen: Json
    env: Mapping[str, str]
    words: tuple[str, ...]
    image: str

    @property
    def namespace(self) -> str:
        return str(self.seen["metadata"].get("namespace") or "")

    @property
    def name(self) -> str:
        return str(self.seen["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.seen["metadata"].get("uid"))

    @property
    def job(self) -> str:
        """The name of the job. If each role has its own Job, it is that of the trainers' Job."""
        label = _labels(self.seen).get(JOB_LABEL)
        if label:
            return label
        role, _, address = self.value("LAUNCHER_SERVICE").partition("=")
        trainers = address.split(".")[0] if role == "trainer" else ""
        return trainers or self.name

    @property
    def members(self) -> int:
        spec = self.seen.get("spec") or {}
        if self.kind == "StatefulSet":
            return int(spec.get("replicas", 1) or 0)
        return int(spec.get("completions") or spec.get("parallelism") or 1)

    @property
    def trains(self) -> bool:
        return (_labels(self.seen).get(ROLE_LABEL) or self.value("LAUNCHER_ROLE") or BOTH) in TRAINS

    @property
    def phase(self) -> str:
        """Complete, failed or suspended, or "" if its pods show how it is."""
        if self.kind == "Job" and (phase := end_phase(self.seen)) in (COMPLETE, FAILED):
            return phase
        return SUSPENDED if (self.seen.get("spec") or {}).get("suspend") else ""

    @property
    def folder(self) -> str:
        path, name = self.value("JOB_PATH"), self.value("JOB_NAME")
        return os.path.join(path, name) if path and name else ""

    def value(self, variable: str) -> str:
        """Return the value of a variable. A flag replaces the variable."""
        flag = f"--{variable.lower().replace('_', '-')}"
        before_command = self.words[: self.words.index("--")] if "--" in self.words else self.words
        for place, word in enumerate(before_command):
            if word.startswith(f"{flag}="):
                return word.partition("=")[2]
            if word == flag and place + 1 < len(before_command):
                return before_command[place + 1]
        return self.env.get(variable, "")


def workloads(jobs: Iterable[Json], sets: Iterable[Json]) -> list[Workload]:
    """Return those objects that run the launcher."""
    found = [_workload("Job", seen) for seen in jobs] + [_workload("StatefulSet", seen) for seen in sets]
    return [workload for workload in found if _runs_launcher(workload)]


def mode(group: Sequence[Workload]) -> str:
    """Return how the job of these objects trains, by the rules of `run`."""
    for workload in group:
        if requested := workload.value("LAUNCHER_MODE"):
            return requested
    if not any("--" in workload.words for workload in group):
        return "v0"
    if len(group) > 1 or any(workload.value("LAUNCHER_PSERVERS") not in ("", "0") for workload in group):
        return PS
    alone = sum(workload.members for workload in group) == 1 and ":" not in group[0].value("CONF_PADDLE_GRADIENT_NUM")
    return SINGLE if alone else COLLECTIVE


def _workload(kind: str, seen: Json) -> Workload:
    main = kube_pods.main_container(template_of(seen))
    env = {str(each.get("name")): str(each.get("value") or "") for each in main.get("env") or []}
    words = tuple(map(str, [*(main.get("command") or []), *(main.get("args") or [])]))
    return Workload(kind, seen, env, words, str(main.get("image") or ""))


def _runs_launcher(workload: Workload) -> bool:
    """Return whether the pods are members of a job. Jobs that only split a data set or look at it have no member."""
    template = template_of(workload.seen)
    labels = _labels(workload.seen) | _labels(template)
    if DOCTOR_LABEL in labels:
        return False
    if labels.get(JOB_LABEL) or labels.get(MANAGED_BY) == _LAUNCHER:
        return True
    if _OWN & set(workload.env):
        return True
    places = [place for place, word in enumerate(workload.words) if os.path.basename(word) in _PROGRAMS]
    return any(
        os.path.basename(workload.words[place]) != _LAUNCHER or workload.words[place + 1 : place + 2] == ("run",)
        for place in places
    )


def template_of(seen: Json) -> Json:
    """Return the pod template of a Job or StatefulSet, always with metadata."""
    template = (seen.get("spec") or {}).get("template") or {}
    return {**template, "metadata": template.get("metadata") or {}}


def _labels(seen: Json) -> dict[str, str]:
    return seen["metadata"].get("labels") or {}
