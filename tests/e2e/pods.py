"""Helpers for pods: how they ended, how they are deleted, and which variables their containers get."""

from __future__ import annotations

import shlex
import subprocess

from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.training import Training

MISSING_IMAGE = "localhost/there-is-no-such-image:1"


def end_of(pod: Json) -> Json:
    """Return the end of a container with its message, as `kubectl describe pod` shows it. Empty while it runs."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    found: Json = statuses[0].get("state", {}).get("terminated") or {}
    return found


def exit_codes(pods: list[Json]) -> list[int]:
    """Return the sorted exit codes of the pods that ended."""
    return sorted(end_of(pod)["exitCode"] for pod in pods if end_of(pod))


def name_of(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def uids(pods: list[Json]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def scale(training: Training, parallelism: int) -> None:
    """Set how many pods the Job may have at the same time."""
    patch = f'{{"spec": {{"parallelism": {parallelism}}}}}'
    kubectl("-n", training.cluster.namespace, "patch", "job", training.name, "-p", patch)


def delete_pod(training: Training, name: str) -> None:
    """Delete a pod without waiting for its end."""
    kubectl("-n", training.cluster.namespace, "delete", "pod", name, "--wait=false")


def evict(training: Training, name: str) -> None:
    """Evict a pod as `kubectl drain` does."""
    place = f"/api/v1/namespaces/{training.cluster.namespace}/pods/{name}/eviction"
    eviction: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    kubectl("create", "--raw", place, "-f", "-", given=eviction)


def delete_job(training: Training) -> None:
    """Delete a Job as `kubectl delete job` does. The Job is gone at once, and its pods end later."""
    kubectl("-n", training.cluster.namespace, "delete", "job", training.name)


def stop_at_once(cluster: Cluster, pod: str) -> None:
    """Send a second SIGTERM to a launcher, if it still runs. Then its children get no more grace period."""
    command = ["kubectl", "-n", cluster.namespace, "exec", pod, "--", "sh", "-c", "kill 1"]
    subprocess.run(command, capture_output=True, check=False, timeout=60)


def kill(cluster: Cluster, pod: str, *what: str) -> None:
    """Run `pkill` in a pod, as soon as the process to kill exists."""
    command = ["kubectl", "-n", cluster.namespace, "exec", pod, "--", "pkill", *what]
    until(lambda: subprocess.run(command, capture_output=True, timeout=60).returncode == 0)


def keep_objects(job: Json) -> None:
    """Keep the objects of ended pods until `release_objects`, because a busy launcher reads them late."""
    job["spec"]["template"].setdefault("metadata", {})["finalizers"] = ["example.test/kept"]


def release_objects(cluster: Cluster) -> None:
    """Delete the Jobs, so that they create no new pods, and then allow the deletion of the old pods."""
    kubectl("-n", cluster.namespace, "delete", "jobs", "--all", "--cascade=orphan")
    for pod in cluster.pods(""):
        kubectl("-n", cluster.namespace, "patch", "pod", name_of(pod), "-p", '{"metadata": {"finalizers": null}}')


def with_variables_from_volume(training: Training, job: Json) -> None:
    """Make each container read variables from the volume at its start, so that they can differ between pods."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = shlex.join(container["command"])
    container["command"] = ["sh", "-c", f"set -a; . /home/jobpath/variables; set +a; exec {command}"]


def set_variables(training: Training, text: str) -> None:
    """Set the variables of containers that start from now on, in shell syntax."""
    (training.volume / "variables").write_text(text)
