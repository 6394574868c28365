"""A PaddleJob in Python, as a gang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.job import pod_env
from launcher.job.parameters import all_volumes, as_kubernetes_spells_it, cpus, gpus, job_of, words
from launcher.job.spec import COLLECTIVE, JobSpec, Json, PodGroupSpec, RoleSpec, mode
from launcher.job.volumes import mounted
from launcher.model import BOTH, PSERVER, TRAINER

if TYPE_CHECKING:
    from launcher.job.paddlejob import PaddleJob

_CONTAINER = "paddle"
_MEMORY = "1G"  # asked for, and no limit
_GPU = "nvidia.com/gpu"


def job_spec(job: PaddleJob, namespace: str | None) -> JobSpec:
    """Servers and trainers in pods of their own, or trainers alone."""
    command = words(job.entry_point)
    template = _template(job, gpus(job))
    roles = [RoleSpec(TRAINER, job_of(job, TRAINER), job.trainers, template, _CONTAINER, command)]
    if job.pservers:
        roles.insert(0, RoleSpec(PSERVER, job_of(job, PSERVER), job.pservers, _template(job, 0), _CONTAINER, command))
    else:
        roles = [replace(roles[0], kind=BOTH)]
    described = JobSpec(
        name=job.job_name,
        namespace=namespace,
        mode=COLLECTIVE if _trainers_by_gpu(job) else mode(roles),
        roles=tuple(roles),
        group=_group(job) if job.gang_scheduling else None,
        max_restarts=job.max_restarts,
        launcher=job.launcher_image,
        labels=dict(job.labels or {}),
        volumes=tuple(job.cephfs_volume.objects(job.job_name, namespace or "")) if job.cephfs_volume else (),
    )
    return replace(described, secret=pod_env.secret(described))


def _trainers_by_gpu(job: PaddleJob) -> bool:
    """Whether a pod runs several trainers: today's Paddle has a process for each GPU."""
    return gpus(job) > 1 and not job.pservers


def _group(job: PaddleJob) -> PodGroupSpec:
    spec: Json = {"minMember": job.trainers + job.pservers}
    return PodGroupSpec(job.job_name, spec | ({"queue": job.queue} if job.queue else {}))


def _template(job: PaddleJob, gpu_count: int) -> Json:
    """The pods of a role; only those that train have GPUs."""
    volumes, mounts = mounted(tuple(volume for _, volume in all_volumes(job)), job.job_name)
    if job.shared_memory:
        size = as_kubernetes_spells_it(job.shared_memory)
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    container: Json = {
        "name": _CONTAINER,
        "image": job.runtime_image,
        "env": _variables(job),
        "resources": _resources(job, gpu_count),
        "volumeMounts": mounts,
        "workingDir": job.trainer_package_path,
    }
    spec = {
        "containers": [_filled(container)],
        "volumes": volumes,
        "nodeSelector": dict(job.node_selector or {}),
        "tolerations": [dict(toleration) for toleration in job.tolerations],
        "priorityClassName": job.priority,
        "serviceAccountName": job.service_account,
        "automountServiceAccountToken": None if job.service_account else False,
    }
    return {"metadata": {"labels": dict(job.labels or {})}, "spec": _filled(spec)}


def _variables(job: PaddleJob) -> list[Json]:
    given = {"LAUNCHER_TRAINERS_PER_NODE": "gpus"} if _trainers_by_gpu(job) else {}
    return [
        {"name": name} | ({"valueFrom": dict(value)} if isinstance(value, Mapping) else {"value": str(value)})
        for name, value in (given | dict(job.env or {})).items()
    ]


def _resources(job: PaddleJob, gpu_count: int) -> Json:
    memory = as_kubernetes_spells_it(job.memory or _MEMORY)
    limits = {"memory": memory} if job.memory else {}
    if gpu_count:
        limits[_GPU] = str(gpu_count)
    return _filled({"requests": {"cpu": str(cpus(job)), "memory": memory}, "limits": limits})


def _filled(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None and value not in ({}, [])}
