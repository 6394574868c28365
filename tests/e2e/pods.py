"""Pods as kubectl shows them: how they ended, and what they run when."""

from __future__ import annotations

import shlex
import subprocess

from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.training import Training

MISSING_IMAGE = "localhost/there-is-no-such-image:1"


def end_of(pod: Json) -> Json:
    """What `kubectl describe pod` says of a container that ended, its message included; empty while it runs."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    found: Json = statuses[0].get("state", {}).get("terminated") or {}
    return found


def exit_codes(pods: list[Json]) -> list[int]:
    """Of the pods that ended, sorted."""
    return sorted(end_of(pod)["exitCode"] for pod in pods if end_of(pod))


def name_of(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def uids(pods: list[Json]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def scale(training: Training, parallelism: int) -> None:
    """How many pods the Job may have at a time."""
    patch = f'{{"spec": {{"parallelism": {parallelism}}}}}'
    kubectl("-n", training.cluster.namespace, "patch", "job", training.name, "-p", patch)


def delete_pod(training: Training, name: str) -> None:
    """Without waiting for its end."""
    kubectl("-n", training.cluster.namespace, "delete", "pod", name, "--wait=false")


def evict(training: Training, name: str) -> None:
    """As `kubectl drain` does it."""
    place = f"/api/v1/namespaces/{training.cluster.namespace}/pods/{name}/eviction"
    eviction: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    kubectl("create", "--raw", place, "-f", "-", given=eviction)


def delete_job(training: Training) -> None:
    """As `kubectl delete job` does it: the Job is gone at once, its pods take their time."""
    kubectl("-n", training.cluster.namespace, "delete", "job", training.name)


def stop_at_once(cluster: Cluster, pod: str) -> None:
    """The second SIGTERM for a launcher that was told to stop, if it is still there: no more grace for its children."""
    command = ["kubectl", "-n", cluster.namespace, "exec", pod, "--", "sh", "-c", "kill 1"]
    subprocess.run(command, capture_output=True, check=False, timeout=60)


def kill(cluster: Cluster, pod: str, *what: str) -> None:
    """`pkill` in a pod, as soon as it has what is to be killed."""
    command = ["kubectl", "-n", cluster.namespace, "exec", pod, "--", "pkill", *what]
    until(lambda: subprocess.run(command, capture_output=True, timeout=60).returncode == 0)


def keep_objects(job: Json) -> None:
    """Keep the objects of pods that are gone until `release_objects`: a busy launcher reads them late."""
    job["spec"]["template"].setdefault("metadata", {})["finalizers"] = ["example.test/kept"]


def release_objects(cluster: Cluster) -> None:
    """Delete the Jobs, which would create new pods, and let Kubernetes delete the objects of the old ones."""
    kubectl("-n", cluster.namespace, "delete", "jobs", "--all", "--cascade=orphan")
    for pod in cluster.pods(""):
        kubectl("-n", cluster.namespace, "patch", "pod", name_of(pod), "-p", '{"metadata": {"finalizers": null}}')


def told_at_start(training: Training, job: Json) -> None:
    """Let each container read variables from the volume when it starts, so that they can differ from pod to pod."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = shlex.join(container["command"])
    container["command"] = ["sh", "-c", f"set -a; . /home/jobpath/told; set +a; exec {command}"]


def tell(training: Training, text: str) -> None:
    """What containers that start from now on are told, in the words of a shell."""
    (training.volume / "told").write_text(text)
