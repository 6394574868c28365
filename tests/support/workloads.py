"""Objects of jobs in a cluster: those of our manifests, and pods of them in the states that tests need."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

from tests.support.fake_cluster import FakeCluster, Json
from tests.support.paths import REPOSITORY

CREATED = "2026-11-18T10:00:00Z"


@lru_cache
def _documents(path: str) -> list[Json]:
    return list(yaml.safe_load_all((REPOSITORY / "k8s" / path).read_text()))


def put_manifests(cluster: FakeCluster, path: str, namespace: str = "ns") -> list[str]:
    """Add the Jobs and StatefulSets of a file below k8s, and return their names."""
    names = []
    for made in _documents(path):
        plural = {"Job": "jobs", "StatefulSet": "statefulsets"}[made["kind"]]
        names.append(put_workload(cluster, plural, made["metadata"]["name"], deepcopy(made["spec"]), namespace))
    return names


def put_workload(cluster: FakeCluster, plural: str, name: str, spec: Json, namespace: str = "ns", **more: Any) -> str:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": CREATED}
    cluster.put(plural, {"metadata": metadata | more.get("metadata", {}), "spec": spec, "status": {}})
    return name


def put_pod_of(
    cluster: FakeCluster, owner: str, number: int, namespace: str = "ns", *, indexed: bool = True, **state: Any
) -> str:
    """Add a pod of a Job or StatefulSet. `state`: of its main container; `restarts` and `last` of it, too."""
    restarts, last = state.pop("restarts", 0), state.pop("last", None)
    name = f"{owner}-{number}"
    labels = {"batch.kubernetes.io/job-completion-index": str(number)} if indexed else {}
    status = {
        "name": "trainer",
        "state": state,
        "ready": "running" in state,
        "restartCount": restarts,
        "lastState": {"terminated": last} if last else {},
    }
    cluster.put(
        "pods",
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels,
                "creationTimestamp": CREATED,
                "ownerReferences": [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}],
            },
            "spec": {"containers": [{"name": "trainer"}]},
            "status": {"phase": "Running", "containerStatuses": [status]},
        },
    )
    return name
