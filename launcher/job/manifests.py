"""The Kubernetes objects of a job, made from its JobSpec."""

from __future__ import annotations

import base64
from typing import Any

from launcher.errors import FOR_GOOD, Exit
from launcher.job import kueue
from launcher.job.pod_env import SECRET_KEY
from launcher.job.pod_template import pod_template
from launcher.job.spec import JOB_LABEL, ROLE_LABEL, JobSpec, Json, PodGroupSpec, RoleSpec


def objects(job_spec: JobSpec) -> list[Json]:
    """Return the job's objects in the order of their creation, without the objects that the user has made."""
    all_objects = [_labelled(job_spec, volume) for volume in job_spec.volume_objects]
    if job_spec.secret and job_spec.secret.value:
        all_objects.append(_secret(job_spec, job_spec.secret.name, job_spec.secret.value))
    if job_spec.service:
        all_objects.append(_service(job_spec, job_spec.service))
    if job_spec.pod_group and job_spec.pod_group.spec is not None:
        all_objects.append(_pod_group(job_spec, job_spec.pod_group))
    return all_objects + [_job(job_spec, role_spec) for role_spec in job_spec.roles]


def _secret(job_spec: JobSpec, name: str, value: str) -> Json:
    """Return an immutable Secret: if its content changed, new pods could not join the running gang."""
    text = base64.b64encode(value.encode()).decode()
    return _object(job_spec, "v1", "Secret", name) | {"type": "Opaque", "immutable": True, "data": {SECRET_KEY: text}}


def _service(job_spec: JobSpec, name: str) -> Json:
    """Return the headless Service. It publishes pods that are not ready, because these pods must find each other."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_LABEL: job_spec.name}}
    return _object(job_spec, "v1", "Service", name) | {"spec": spec}


def _pod_group(job_spec: JobSpec, group: PodGroupSpec) -> Json:
    group_object = _object(job_spec, "scheduling.volcano.sh/v1beta1", "PodGroup", group.name)
    return group_object | {"spec": dict(group.spec or {})}


def _job(job_spec: JobSpec, role_spec: RoleSpec) -> Json:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "parallelism": role_spec.replicas,
        "completions": role_spec.replicas,
        "backoffLimit": job_spec.backoff_limit,
        "podFailurePolicy": {"rules": _failure_rules(role_spec.container)},
        "template": pod_template(job_spec, role_spec),
    }
    if job_spec.ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = job_spec.ttl_seconds
    job = _object(job_spec, "batch/v1", "Job", role_spec.name)
    job["metadata"]["labels"][ROLE_LABEL] = role_spec.role
    if annotated := {**kueue.partial_admission(job_spec, role_spec), **job_spec.annotations}:
        job["metadata"]["annotations"] = annotated
    return job | {"spec": spec}


def _failure_rules(container: str) -> list[Json]:
    """Return the podFailurePolicy (docs/exit-codes.md). A mistake of the user fails the Job at once.

    A failure that another pod or a disruption has caused does not count. Every other failure counts.
    """

    def on_exit_codes(action: str, *codes: int) -> Json:
        condition = {"containerName": container, "operator": "In", "values": sorted(map(int, codes))}
        return {"action": action, "onExitCodes": condition}

    return [
        on_exit_codes("FailJob", *FOR_GOOD),
        on_exit_codes("Ignore", Exit.PEER_FAILED, Exit.STOPPED),
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _object(job_spec: JobSpec, version: str, kind: str, name: str) -> Json:
    metadata: Json = {"name": name}
    if job_spec.namespace:
        metadata["namespace"] = job_spec.namespace
    return _labelled(job_spec, {"apiVersion": version, "kind": kind, "metadata": metadata})


def _labelled(job_spec: JobSpec, unlabelled: Json) -> Json:
    labels = job_spec.own_labels | dict(job_spec.labels) | {JOB_LABEL: job_spec.name}
    return unlabelled | {"metadata": unlabelled["metadata"] | {"labels": labels}}
