"""Make pod objects as the API server returns them, in the states that tests need."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pod(name: str, address: str = "", *, job: str = "x", uid: str = "", owner: str = "job-uid", **more: Any) -> Json:
    """Make a pod of a Job. With an address it is Running, else Pending. `more`: index, role, created."""
    labels = {"job-name": job}
    if "index" in more:
        labels["batch.kubernetes.io/job-completion-index"] = str(more["index"])
    state: Json = {"running": {}} if address else {"waiting": {"reason": "ContainerCreating"}}
    made: Json = {
        "metadata": {
            "name": name,
            "uid": uid or f"uid-{name}",
            "labels": labels,
            "creationTimestamp": more.get("created", "2026-01-01T00:00:00Z"),
            "ownerReferences": [{"kind": "Job", "name": job, "uid": owner, "controller": True}],
        },
        "spec": {"restartPolicy": "Never", "nodeName": "node-1", "containers": [{"name": "trainer"}, {"name": "side"}]},
        "status": {
            "phase": "Running" if address else "Pending",
            "containerStatuses": [{"name": "trainer", "ready": bool(address), "state": state}],
        },
    }
    if address:
        made["status"]["podIP"] = address
    if "role" in more:
        made["spec"]["containers"][0]["env"] = [{"name": "LAUNCHER_ROLE", "value": more["role"]}]
    return made


def member_of_set(name: str, address: str, *, revision: str = "r1") -> Json:
    """Make a pod of a StatefulSet."""
    made = pod(name, address)
    base, _, ordinal = name.rpartition("-")
    made["metadata"]["labels"] |= {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": ordinal,
        "controller-revision-hash": revision,
    }
    made["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": base, "uid": "set-uid", "controller": True}]
    made["spec"]["restartPolicy"] = "Always"
    return made


def ended(made: Json, code: int, reason: str = "Error", phase: str = "Running") -> Json:
    """End the main container of the pod. If a sidecar runs, the phase stays Running."""
    made["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": code, "reason": reason}}
    made["status"]["phase"] = phase
    return made


def leaving(made: Json) -> Json:
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    return made


def evicted(made: Json) -> Json:
    made["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "low on memory", "containerStatuses": []}
    return made


def waiting(made: Json, reason: str, message: str = "", kind: str = "containerStatuses", name: str = "trainer") -> Json:
    made["status"][kind] = [{"name": name, "state": {"waiting": {"reason": reason, "message": message}}}]
    return made


def unschedulable(made: Json, message: str) -> Json:
    """Let no node have room for the pod."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made["status"] = {"phase": "Pending", "conditions": [condition]}
    return made
