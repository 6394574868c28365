"""Find a job in the cluster by its name, and read its state: one that `submit` has made, or one of other manifests."""

from __future__ import annotations

from launcher.base import kube_pods
from launcher.base.kube import KubeClient
from launcher.base.kube_errors import Denied, Refused
from launcher.base.suggestion import meant
from launcher.errors import Exit, Failure
from launcher.job import recognition
from launcher.job.recognition import Workload
from launcher.job.spec import JOB_LABEL, ROLE_LABEL, Json
from launcher.job.state import JobState, Part, PodHistory, state_of
from launcher.model import BOTH


def read_state(client: KubeClient, name: str, history: PodHistory | None = None) -> JobState:
    """Return the job's state now. Raises Failure if there is no such job."""
    jobs = client.list("Job", f"{JOB_LABEL}={name}")
    if jobs:
        parts = [
            Part(job, str(job["metadata"]["labels"].get(ROLE_LABEL)), job["spec"].get("completions") or 1)
            for job in jobs
        ]
        pods = client.list("Pod", f"{JOB_LABEL}={name}")
    else:
        found = find_workloads(client, name)
        parts = [Part(each.seen, each.value("LAUNCHER_ROLE") or BOTH, each.members) for each in found]
        pods = [pod for each in found for pod in _pods_of(client, each)]
    pods = history.add(pods) if history else pods
    return state_of(name, client.namespace, parts, pods, submitted=bool(jobs))


def find_workloads(client: KubeClient, name: str) -> list[Workload]:
    """Return the Jobs and StatefulSets of a job. Raises Failure, with a suggestion, if there are none."""
    found = recognition.workloads(client.list_all("Job"), _sets(client))
    job = next((each.job for each in found if name in (each.job, each.name)), None)
    if job is None:
        suggestion = meant(name, [each.job for each in found])
        raise Failure(
            Exit.NO_INPUT,
            f"{name}: there is no such job in namespace {client.namespace}{suggestion or ':'} "
            "`paddle-launcher list -A` lists the jobs of all namespaces",
        )
    return [each for each in found if each.job == job]


def _sets(client: KubeClient) -> list[Json]:
    """Return all StatefulSets, or none without the right to list them: users of `submit` need not have it."""
    try:
        return client.list_all("StatefulSet")
    except (Denied, Refused):
        return []


def _pods_of(client: KubeClient, workload: Workload) -> list[Json]:
    labels = {"job-name": workload.name}
    if workload.kind == "StatefulSet":
        labels = ((workload.seen.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    pods = client.list("Pod", ",".join(f"{key}={value}" for key, value in labels.items()))
    return [pod for pod in pods if kube_pods.controller_reference(pod).get("uid") == workload.uid]
