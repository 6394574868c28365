"""What `doctor` examines: the Jobs and StatefulSets of one job, from a file or from the cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.base import kube_pods
from launcher.base.kube import KubeClient
from launcher.base.kube_errors import ApiError
from launcher.errors import Exit, Failure
from launcher.job import recognition, render
from launcher.job.from_yaml import RenderOptions
from launcher.job.manifests import objects
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import Json

_TEXTS = {str: str}
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?")  # in a command, it is neither a flag nor more words
_REFERENCE = {"name": _NAME, "key": str, "optional": bool}
_CONTAINER: Json = {
    "name": _NAME,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [
        {"name": str, "value": str, "valueFrom": {"configMapKeyRef": _REFERENCE, "secretKeyRef": _REFERENCE}},
    ],
    "envFrom": [{"configMapRef": _REFERENCE, "secretRef": _REFERENCE, "prefix": str}],
    "volumeMounts": [{"name": _NAME, "mountPath": str}],
    "ports": [{"containerPort": int, "hostPort": int}],
    "securityContext": {"runAsUser": int, "runAsGroup": int},
}
_CODES = {"containerName": str, "operator": str, "values": [int]}
_POD: Json = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [
        {
            "name": _NAME,
            "persistentVolumeClaim": {"claimName": _NAME},
            "secret": {"secretName": _NAME, "optional": bool},
            "configMap": {"name": _NAME, "optional": bool},
        },
    ],
    "imagePullSecrets": [{"name": _NAME}],
    "nodeSelector": _TEXTS,
    "serviceAccountName": _NAME,
    "schedulerName": str,
    "subdomain": str,
    "restartPolicy": str,
    "hostNetwork": bool,
    "automountServiceAccountToken": bool,
    "securityContext": {"runAsUser": int, "runAsGroup": int, "fsGroup": int},
}
_METADATA: Json = {"name": _NAME, "namespace": _NAME, "labels": _TEXTS, "annotations": _TEXTS}
_WORKLOAD: Json = {
    "metadata": _METADATA,
    "spec": {
        "parallelism": int,
        "completions": int,
        "replicas": int,
        "backoffLimit": int,
        "completionMode": str,
        "serviceName": _NAME,
        "podFailurePolicy": {"rules": [{"action": str, "onExitCodes": _CODES}]},
        "template": {"metadata": _METADATA, "spec": _POD},
    },
}
_OTHER: Json = {
    "metadata": _METADATA,
    "roleRef": {"kind": str, "name": _NAME},
    "subjects": [{"kind": str, "name": _NAME, "namespace": _NAME}],
    "rules": [{"apiGroups": [str], "resources": [str], "verbs": [str]}],
}
_SERVICE: Json = {"metadata": _METADATA, "spec": {"clusterIP": str, "selector": _TEXTS}}
_SHAPES = {"Job": _WORKLOAD, "StatefulSet": _WORKLOAD, "Service": _SERVICE}
_NAMES = {str: "text", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True)
class Subject:
    """The job to examine.

    file: its name for messages, or "" if the job is in the cluster
    documents: the objects of the file, with those that `render` makes
    unread: the Secrets and ConfigMaps with variables that could not be read
    """

    name: str
    workloads: tuple[Workload, ...]
    file: str = ""
    documents: tuple[Json, ...] = ()
    is_paddlejob: bool = False
    unread: tuple[str, ...] = ()

    @property
    def leading(self) -> Workload:
        """The Job or StatefulSet whose pods train."""
        return next((workload for workload in self.workloads if workload.trains), self.workloads[0])

    def has(self, kind: str, name: str) -> bool:
        return self.document(kind, name) is not None

    def document(self, kind: str, name: str) -> Json | None:
        """Return the object of the file, or None."""
        found = (each for each in self.documents if each.get("kind") == kind)
        return next((each for each in found if each["metadata"].get("name") == name), None)


def is_file(given: str) -> bool:
    """Return whether the argument names a file, not a job in the cluster."""
    return (
        given == render.STANDARD_INPUT
        or "/" in given
        or given.endswith((".yaml", ".yml", ".json"))
        or (os.path.isfile(given))
    )


def from_file(file: str, options: RenderOptions) -> Subject:
    """Return the only job in a file with a PaddleJob or with plain manifests. Raises Failure."""
    documents, name = render.read_documents(file), render.file_name(file)
    is_paddlejob = render.has_job(documents)
    values: list[Json] = []
    if is_paddlejob:
        for document, job_spec in render.convert("doctor", documents, options, strict=False):
            values += [document.value] if job_spec is None else objects(job_spec)
    else:
        values = [document.value for document in documents]
    problems = [problem for number, value in enumerate(values, 1) for problem in _misshapen(value, number)]
    if problems:
        raise Failure(Exit.CONFIG, "\n".join(f"{name}: {problem}" for problem in problems))
    by_kind = {kind: [value for value in values if value.get("kind") == kind] for kind in ("Job", "StatefulSet")}
    found = recognition.workloads(by_kind["Job"], by_kind["StatefulSet"])
    jobs = sorted({workload.job for workload in found})
    if not jobs:
        kinds = ", ".join(sorted({str(value.get("kind")) for value in values})) or "nothing"
        raise Failure(
            Exit.CONFIG,
            f"{name}: expected a PaddleJob, or a Job or StatefulSet whose pods run the launcher; found {kinds}",
        )
    if len(jobs) > 1:
        raise Failure(Exit.USAGE, f"{name}: has {len(jobs)} jobs ({', '.join(jobs)}): put each job into its own file")
    return Subject(jobs[0], tuple(found), name, tuple(values), is_paddlejob)


def from_cluster(client: KubeClient, name: str) -> Subject:
    """Return the job with this name, or whose Job or StatefulSet has this name. Raises Failure."""
    found = recognition.workloads(client.list_all("Job"), client.list_all("StatefulSet"))
    job = next((workload.job for workload in found if name in (workload.job, workload.name)), None)
    if job is None:
        raise Failure(
            Exit.NO_INPUT,
            f"{name}: namespace {client.namespace} has no Job or StatefulSet of this name that runs the launcher: "
            f"`paddle-launcher list -n {client.namespace}` shows all jobs; for a file, give its path, as in ./{name}",
        )
    return Subject(job, tuple(workload for workload in found if workload.job == job))


def namespace_of(subject: Subject, given: str | None) -> str | None:
    """Return the namespace in which to look: that of the flag, else that of the file. Raises Failure."""
    named = {workload.namespace for workload in subject.workloads} - {""}
    if len(named) > 1:
        raise Failure(Exit.CONFIG, f"{subject.file}: expected one namespace for all objects, found {_and(named)}")
    if given and named and named != {given}:
        raise Failure(
            Exit.USAGE,
            f"--namespace: {given!r}: the file has namespace {_and(named)!r}: remove this flag, or metadata.namespace "
            "from the file",
        )
    return given or next(iter(named), None)


def with_variables(subject: Subject, client: KubeClient) -> Subject:
    """Return the subject with the variables that its containers get from ConfigMaps, too."""
    unread: list[str] = []
    workloads = tuple(
        replace(workload, env=_from_maps(subject, workload, client, unread) | _set_here(workload))
        for workload in subject.workloads
    )
    return replace(subject, workloads=workloads, unread=tuple(dict.fromkeys(unread)))


def _from_maps(subject: Subject, workload: Workload, client: KubeClient, unread: list[str]) -> dict[str, str]:
    main = kube_pods.main_container(template_of(workload.seen))
    found: dict[str, str] = {}
    for source in main.get("envFrom") or []:
        if secret := (source.get("secretRef") or {}).get("name"):
            unread.append(f"Secret {secret}")
        if name := (source.get("configMapRef") or {}).get("name"):
            prefix = source.get("prefix") or ""
            found |= {f"{prefix}{key}": value for key, value in _data(subject, name, client, unread).items()}
    for entry in main.get("env") or []:
        origin = entry.get("valueFrom") or {}
        reference = origin.get("configMapKeyRef") or {}
        if name := reference.get("name"):
            value = _data(subject, name, client, unread).get(str(reference.get("key")))
            if value is not None:
                found[entry["name"]] = value
        if secret := (origin.get("secretKeyRef") or {}).get("name"):
            unread.append(f"Secret {secret}")
    return found


def _set_here(workload: Workload) -> dict[str, str]:
    return {name: value for name, value in workload.env.items() if value}


def _data(subject: Subject, name: str, client: KubeClient, unread: list[str]) -> Mapping[str, str]:
    try:
        found = subject.document("ConfigMap", name) or client.get("ConfigMap", name) or {}
    except ApiError:
        unread.append(f"ConfigMap {name}")
        return {}
    data = found.get("data")
    return {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}


def _misshapen(value: Json, number: int) -> list[str]:
    kind = value.get("kind")
    where = f"document {number} ({kind})" if isinstance(kind, str) else f"document {number}"
    problems = [] if isinstance(kind, str) else [f"{where}: kind: {kind!r:.60}: expected text"]
    problems += _wrong_types(value, _SHAPES.get(str(kind), _OTHER), where)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return problems or [f"{where}: metadata.name: missing: expected the object's name"]
    if kind not in ("Job", "StatefulSet") or problems:
        return problems
    pod = ((value.get("spec") or {}).get("template") or {}).get("spec") or {}
    lists = [("containers", pod.get("containers") or []), ("initContainers", pod.get("initContainers") or [])]
    lists.append(("volumes", pod.get("volumes") or []))
    if not pod.get("containers"):
        problems.append(f"{where}: spec.template.spec.containers: expected at least one container")
    for name, items in lists:
        for index, item in enumerate(items):
            path = f"{where}: spec.template.spec.{name}[{index}]"
            problems += [] if item.get("name") else [f"{path}.name: missing"]
            for below in ("env", "volumeMounts"):
                if not all(entry.get("name") for entry in item.get(below) or []):
                    problems.append(f"{path}.{below}: expected a name in each entry")
    return problems


def _wrong_types(value: Any, shape: Any, path: str) -> list[str]:
    """Return the fields of a wrong type, among those that the checks read. A null field counts as absent."""
    if value is None:
        return []
    if isinstance(shape, re.Pattern):
        good = isinstance(value, str) and (not value or shape.fullmatch(value))
        return [] if good else [f"{path}: {value!r:.60}: expected a name: letters and digits, and - . _ : within it"]
    if isinstance(shape, type):
        good = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        return [] if good else [f"{path}: {value!r:.60}: expected {_NAMES[shape]}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{path}: {value!r:.60}: expected a list"]
        none = [f"{path}: an item is empty"] if None in value else []
        return none + [each for at, item in enumerate(value) for each in _wrong_types(item, shape[0], f"{path}[{at}]")]
    if not isinstance(value, dict):
        return [f"{path}: {value!r:.60}: expected a mapping"]
    if shape is _TEXTS:
        return [each for key, text in value.items() for each in _wrong_types(text, str, f"{path}.{key}")]
    return [each for key, below in shape.items() for each in _wrong_types(value.get(key), below, f"{path}.{key}")]


def _and(names: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(names))
