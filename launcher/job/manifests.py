"""From a description to plain Kubernetes objects, in the order in which they are to be created."""

from __future__ import annotations

import base64
from typing import Any

from launcher.errors import FOR_GOOD, Exit
from launcher.job import pod_template
from launcher.job.pod_env import SECRET_KEY
from launcher.job.spec import JobSpec, Json, PodGroupSpec, RoleSpec


def objects(gang: JobSpec) -> list[Json]:
    """All that the job needs, and does not have yet."""
    made = [_labelled(gang, volume) for volume in gang.volumes]
    if gang.secret and gang.secret.value:
        made.append(_secret(gang, gang.secret.name, gang.secret.value))
    if gang.service:
        made.append(_service(gang, gang.service))
    if gang.group and gang.group.spec is not None:
        made.append(_group(gang, gang.group))
    return made + [_job(gang, role) for role in gang.roles]


def _secret(gang: JobSpec, name: str, value: str) -> Json:
    """Immutable: another one under this name would keep the pods that start later out of a gang that runs."""
    made = _object(gang, "v1", "Secret", name)
    text = base64.b64encode(value.encode()).decode()
    return made | {"type": "Opaque", "immutable": True, "data": {SECRET_KEY: text}}


def _service(gang: JobSpec, name: str) -> Json:
    """Names for the pods, which must resolve before a pod is ready: it gets ready by joining."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {pod_template.JOB: gang.name}}
    return _object(gang, "v1", "Service", name) | {"spec": spec}


def _group(gang: JobSpec, group: PodGroupSpec) -> Json:
    return _object(gang, "scheduling.volcano.sh/v1beta1", "PodGroup", group.name) | {"spec": dict(group.spec or {})}


def _job(gang: JobSpec, role: RoleSpec) -> Json:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "parallelism": role.replicas,
        "completions": role.replicas,
        "backoffLimit": gang.backoff_limit,
        "podFailurePolicy": {"rules": _rules(role.container)},
        "template": pod_template.template(gang, role),
    }
    if gang.seconds_kept is not None:
        spec["ttlSecondsAfterFinished"] = gang.seconds_kept
    made = _object(gang, "batch/v1", "Job", role.job)
    made["metadata"]["labels"][pod_template.ROLE] = role.kind
    if gang.annotations:
        made["metadata"]["annotations"] = dict(gang.annotations)
    return made | {"spec": spec}


def _rules(container: str) -> list[Json]:
    """Mistakes end the job, consequences do not count, the rest does: docs/exit-codes.md."""

    def codes(action: str, *values: int) -> Json:
        found = {"containerName": container, "operator": "In", "values": sorted(map(int, values))}
        return {"action": action, "onExitCodes": found}

    return [
        codes("FailJob", *FOR_GOOD),
        codes("Ignore", Exit.PEER_FAILED, Exit.STOPPED),
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _labelled(gang: JobSpec, made: Json) -> Json:
    """An object that was described elsewhere, as one of the job's."""
    return made | {"metadata": made["metadata"] | {"labels": _labels(gang)}}


def _object(gang: JobSpec, version: str, kind: str, name: str) -> Json:
    metadata: Json = {"name": name}
    if gang.namespace:
        metadata["namespace"] = gang.namespace
    metadata["labels"] = _labels(gang)
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _labels(gang: JobSpec) -> Json:
    return pod_template.labels(gang) | dict(gang.labels) | {pod_template.JOB: gang.name}
