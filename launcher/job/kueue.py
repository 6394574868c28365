"""What Kueue reads from the Jobs of a job, and what its suspension of a Job means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launcher.job.spec import JobSpec, Json, RoleSpec
from launcher.model import BOTH, TRAINER

QUEUE = "kueue.x-k8s.io/queue-name"  # a label
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
EQUAL_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
API = "/apis/kueue.x-k8s.io"


def partial_admission(job_spec: JobSpec, role_spec: RoleSpec) -> Mapping[str, str]:
    """Return the annotations with which Kueue may start an elastic job with fewer pods (partial admission)."""
    if job_spec.sizes is None or role_spec.role not in (BOTH, TRAINER) or QUEUE not in job_spec.labels:
        return {}
    least = job_spec.sizes[0]
    if least >= role_spec.replicas:
        return {}  # Kueue refuses a minimum that is not below the parallelism
    return {MIN_PARALLELISM: str(least), EQUAL_COMPLETIONS: "true"}


def queue_of(job: Json) -> str:
    """Return the queue of Kueue to which a Job or StatefulSet belongs, or ""."""
    return str((job["metadata"].get("labels") or {}).get(QUEUE) or "")


def holding_queue(jobs: Iterable[Json]) -> str:
    """Return the queue in which Kueue holds a job back: one of its Jobs is suspended. Else return ""."""
    return next((queue for job in jobs if (job.get("spec") or {}).get("suspend") and (queue := queue_of(job))), "")
