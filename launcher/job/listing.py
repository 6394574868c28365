"""All jobs of a namespace, or of all namespaces, from their Jobs, StatefulSets and pods."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.base import kube_pods
from launcher.base.kube import KubeClient
from launcher.base.kube_errors import Denied, Refused
from launcher.errors import Exit, Failure
from launcher.job import recognition
from launcher.job.log_end import read_log_end
from launcher.job.recognition import Json, Workload
from launcher.job.state import (
    COMPLETE,
    FAILED,
    RETRIES,
    RUNNING,
    SUSPENDED,
    WAITING,
    conditions_of,
    end_of,
    first_cause,
)

_MOST_LOGS = 20  # jobs; if there are more, only logs of running jobs are read; if more run, none
_LOGS_SECONDS = 5.0


@dataclass(frozen=True)
class ListedJob:
    """One job. The names of the fields are those of `list -o json`, except for `member`.

    ready: how many of its pods are ready, of `members`
    folder: JOB_PATH/JOB_NAME in the pods, or ""
    member: the first trainer that runs, else the first that has ended, with its container
    """

    namespace: str
    name: str
    phase: str
    mode: str
    ready: int
    members: int
    current_pass: str
    restarts: int
    created: str
    exit_code: int | None
    first_cause: str
    objects: tuple[str, ...]
    image: str
    folder: str
    member: tuple[str, str] | None = field(default=None, repr=False)


def list_jobs(client: KubeClient, *, everywhere: bool) -> list[ListedJob]:
    """Return all jobs, sorted by namespace and name. Raises Failure."""
    workloads = recognition.workloads(_list(client, "Job", everywhere), _list_sets(client, everywhere))
    if not workloads:
        return []
    pods: dict[str, list[Json]] = defaultdict(list)
    for pod in _list(client, "Pod", everywhere):
        pods[str(kube_pods.controller_reference(pod).get("uid"))].append(pod)
    groups: dict[tuple[str, str], list[Workload]] = defaultdict(list)
    for workload in workloads:
        groups[workload.namespace, workload.job].append(workload)
    jobs = [_listed(namespace, name, group, pods) for (namespace, name), group in sorted(groups.items())]
    return _with_passes(client, jobs)


def as_fields(job: ListedJob) -> Mapping[str, Any]:
    """Return the fields of a job for JSON."""
    return {name: value for name, value in vars(job).items() if name != "member"}


def _list(client: KubeClient, kind: str, everywhere: bool) -> list[Json]:
    try:
        return client.list_all(kind, everywhere=everywhere)
    except Denied as denied:
        if not everywhere:
            raise
        advice = "To list all namespaces, you need `list` on jobs, statefulsets and pods in a ClusterRole"
        raise Failure(Exit.DENIED, f"{denied.fact}. {advice}. Without -A, a Role in one namespace is enough") from None


def _list_sets(client: KubeClient, everywhere: bool) -> list[Json]:
    """Return all StatefulSets. A user of k8s/submitter from before `list` may not list them: then say so."""
    try:
        return client.list_all("StatefulSet", everywhere=everywhere)
    except (Denied, Refused) as failure:
        if isinstance(failure, Refused) and failure.status != 404:
            raise
        sys.stderr.write(f"list: StatefulSets are not listed: {failure.fact}\n")
        return []


def _listed(namespace: str, name: str, group: Sequence[Workload], pods: Mapping[str, list[Json]]) -> ListedJob:
    found = [(workload, pod) for workload in group for pod in pods.get(workload.uid, [])]
    all_pods = [pod for _, pod in found]
    newest = _newest(all_pods)
    conditions = [condition for workload in group for condition in conditions_of(workload.seen)]
    running = [pod for pod in newest if "running" in (kube_pods.main_container_status(pod).get("state") or {})]
    members = sum(workload.members for workload in group)
    phase = _phase(group, len(running), members, has_failed=bool(newest) and all(map(_has_failed, newest)))
    ends = [each for each in map(end_of, all_pods if phase == FAILED else newest) if each]
    earlier = [each for each in map(_earlier_end, newest) if each]
    code, cause = (None, "") if phase == COMPLETE else first_cause([*ends, *earlier], conditions)
    of_trainers = {id(pod) for workload, pod in found if workload.trains}
    trainers = sorted(
        (pod for pod in newest if id(pod) in of_trainers and (pod in running or end_of(pod))),
        key=lambda pod: (pod not in running, kube_pods.pod_number(pod) or 0),
    )
    leading = next((workload for workload in group if workload.trains), group[0])
    return ListedJob(
        namespace,
        name,
        phase,
        recognition.mode(group),
        sum(bool(kube_pods.main_container_status(pod).get("ready")) for pod in running),
        members,
        "",
        sum(map(_restarts, group)) + sum(map(_container_restarts, all_pods)),
        min(str(workload.seen["metadata"].get("creationTimestamp") or "") for workload in group),
        0 if phase == COMPLETE else code if cause else None,
        cause,
        tuple(f"{workload.kind}/{workload.name}" for workload in group),
        leading.image,
        leading.folder,
        (trainers[0]["metadata"]["name"], kube_pods.main_container(trainers[0])["name"]) if trainers else None,
    )


def _has_failed(pod: Json) -> bool:
    end = end_of(pod)
    return bool(end and end.get("exitCode")) or (pod.get("status") or {}).get("phase") == "Failed"


def _phase(group: Sequence[Workload], running: int, members: int, *, has_failed: bool) -> str:
    """has_failed: whether all pods have failed"""
    phases = [workload.phase for workload in group]
    if FAILED in phases:
        return FAILED
    if all(phase == COMPLETE for phase in phases):
        return COMPLETE
    if SUSPENDED in phases:
        return SUSPENDED
    if has_failed:
        return RETRIES
    return RUNNING if running >= members else WAITING


def _newest(pods: Iterable[Json]) -> list[Json]:
    """Return the pods without those that a newer pod with the same number replaces."""
    newest: dict[object, Json] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        number = kube_pods.pod_number(pod)
        owner = kube_pods.controller_reference(pod).get("uid")
        newest[pod["metadata"]["name"] if number is None else (owner, number)] = pod
    return list(newest.values())


def _earlier_end(pod: Json) -> Json | None:
    """Return how the main container ended before it was restarted, as Kubernetes does in a StatefulSet."""
    end: Json | None = (kube_pods.main_container_status(pod).get("lastState") or {}).get("terminated")
    return end


def _restarts(workload: Workload) -> int:
    """Return how many pods a Job has made in place of failed ones."""
    status = workload.seen.get("status") or {}
    made = sum(status.get(name) or 0 for name in ("active", "succeeded", "failed"))
    return max(0, made - workload.members) if workload.kind == "Job" else 0


def _container_restarts(pod: Json) -> int:
    return int(kube_pods.main_container_status(pod).get("restartCount") or 0)


def _with_passes(client: KubeClient, jobs: Sequence[ListedJob]) -> list[ListedJob]:
    """Return the jobs with the pass that the first trainer has printed. Pods of many jobs are not asked."""
    with_log = [job for job in jobs if job.member]
    if len(with_log) > _MOST_LOGS:
        with_log = [job for job in with_log if job.phase == RUNNING]
    if not with_log or len(with_log) > _MOST_LOGS:
        return list(jobs)
    pool = ThreadPoolExecutor(max_workers=8)
    reads = {pool.submit(_read_pass, client, job): job for job in with_log}
    done, _ = wait(reads, timeout=_LOGS_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    found = {id(reads[read]): read.result() for read in done}
    return [replace(job, current_pass=found.get(id(job), "")) for job in jobs]


def _read_pass(client: KubeClient, job: ListedJob) -> str:
    assert job.member is not None
    try:
        numbers = read_log_end(client, *job.member, namespace=job.namespace).numbers
    except Failure:
        return ""
    if numbers.pass_number is None:
        return ""
    return str(numbers.pass_number) if numbers.passes is None else f"{numbers.pass_number}/{numbers.passes}"
