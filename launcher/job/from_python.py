"""Convert a PaddleJob in Python to a JobSpec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.job import pod_env
from launcher.job.parameters import all_volumes, cpus, gpus, kubernetes_job_name, kubernetes_quantity, split_entry_point
from launcher.job.spec import COLLECTIVE, JobSpec, Json, PodGroupSpec, RoleSpec, mode
from launcher.job.volumes import pod_volumes
from launcher.model import BOTH, HETER, PSERVER, TRAINER

if TYPE_CHECKING:
    from launcher.job.paddlejob import PaddleJob

_CONTAINER = "paddle"
_MEMORY_REQUEST = "1G"
_GPU = "nvidia.com/gpu"


def to_job_spec(job: PaddleJob, namespace: str | None) -> JobSpec:
    roles = _roles(job)
    job_spec = JobSpec(
        name=job.job_name,
        namespace=namespace,
        mode=COLLECTIVE if _has_trainer_per_gpu(job) else mode(roles, elastic=job.elastic is not None),
        roles=tuple(roles),
        max_restarts=job.max_restarts,
        sizes=None if job.elastic is None else (job.elastic[0], job.elastic[1]),
        launcher_image=job.launcher_image,
        labels=dict(job.labels or {}),
        volume_objects=tuple(job.cephfs_volume.objects(job.job_name, namespace or "")) if job.cephfs_volume else (),
    )
    pod_group = _pod_group(job, job_spec.least_pods) if job.gang_scheduling else None
    return replace(job_spec, pod_group=pod_group, secret=pod_env.new_secret(job_spec))


def _roles(job: PaddleJob) -> list[RoleSpec]:
    command = split_entry_point(job.entry_point)

    def role_spec(role: str, name: str, replicas: int, gpu_count: int) -> RoleSpec:
        return RoleSpec(role, name, replicas, _pod_template(job, role, gpu_count), _CONTAINER, command)

    trainers = kubernetes_job_name(job, TRAINER)
    if not job.pservers:
        return [role_spec(BOTH, trainers, job.trainers, gpus(job))]
    roles = [
        role_spec(PSERVER, kubernetes_job_name(job, PSERVER), job.pservers, 0),
        role_spec(TRAINER, trainers, job.trainers, 0 if job.heters else gpus(job)),
    ]
    if job.heters:
        roles.append(role_spec(HETER, kubernetes_job_name(job, HETER), job.heters, gpus(job)))
    return roles


def _has_trainer_per_gpu(job: PaddleJob) -> bool:
    """Return whether each pod runs several trainers: Paddle 2.x and 3.x run one process per GPU."""
    return gpus(job) > 1 and not job.pservers


def _pod_group(job: PaddleJob, least_pods: int) -> PodGroupSpec:
    spec: Json = {"minMember": least_pods}
    return PodGroupSpec(job.job_name, spec | ({"queue": job.queue} if job.queue else {}))


def _pod_template(job: PaddleJob, role: str, gpu_count: int) -> Json:
    volumes, mounts = pod_volumes(tuple(volume for _, volume in all_volumes(job)), job.job_name)
    if job.shared_memory:
        size = kubernetes_quantity(job.shared_memory)
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    container: Json = {
        "name": _CONTAINER,
        "image": job.runtime_image,
        "env": _env(job, role),
        "resources": _resources(job, gpu_count),
        "volumeMounts": mounts,
        "workingDir": job.trainer_package_path,
    }
    pod = {
        "containers": [_without_empty(container)],
        "volumes": volumes,
        "nodeSelector": dict(job.node_selector or {}),
        "tolerations": [dict(toleration) for toleration in job.tolerations],
        "priorityClassName": job.priority,
        "serviceAccountName": job.service_account,
    }
    return {"metadata": {"labels": dict(job.labels or {})}, "spec": _without_empty(pod)}


def _env(job: PaddleJob, role: str) -> list[Json]:
    defaults = {"LAUNCHER_TRAINERS_PER_NODE": "gpus"} if _has_trainer_per_gpu(job) else {}
    if role == HETER and gpus(job):
        defaults["HETER_DEVICE_TYPE"] = "gpu"
    return [
        {"name": name} | ({"valueFrom": dict(value)} if isinstance(value, Mapping) else {"value": str(value)})
        for name, value in (defaults | dict(job.env or {})).items()
    ]


def _resources(job: PaddleJob, gpu_count: int) -> Json:
    """Return the container's resources. Without `memory`, 1G is requested, and there is no limit."""
    memory = kubernetes_quantity(job.memory or _MEMORY_REQUEST)
    limits = {"memory": memory} if job.memory else {}
    if gpu_count:
        limits[_GPU] = str(gpu_count)
    return _without_empty({"requests": {"cpu": str(cpus(job)), "memory": memory}, "limits": limits})


def _without_empty(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None and value not in ({}, [])}
