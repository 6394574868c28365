"""A new namespace on the cluster of KUBECONFIG. E2E_IMAGE names an image that contains this package."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes import client, config

Json = dict[str, Any]

_PROBE = (Path(__file__).parent / "probe.py").read_text()
SIZE = 3


def kubectl(*arguments: str, given: Json | None = None) -> str:
    text = json.dumps(given) if given else None
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def api() -> Any:
    """Return a client for repeated requests. Each kubectl process would take 50 ms of CPU time."""
    return config.new_client_from_config()


class Cluster:
    """A new namespace, in which the service account `member` may read pods, and `nobody` may not."""

    def __init__(self, namespace: str, image: str) -> None:
        self.namespace = namespace
        self.image = image

    def create(self, *objects: Json) -> None:
        kubectl("-n", self.namespace, "create", "-f", "-", given={"kind": "List", "apiVersion": "v1", "items": objects})

    def pods(self, label: str) -> list[Json]:
        found = client.CoreV1Api(api()).list_namespaced_pod(
            self.namespace, label_selector=label, _preload_content=False
        )
        return list(json.loads(found.data)["items"])

    def pod(self, name: str) -> Json:
        found: Json = json.loads(
            client.CoreV1Api(api()).read_namespaced_pod(name, self.namespace, _preload_content=False).data
        )
        return found

    def results(self, label: str, count: int = SIZE) -> list[tuple[Json, Json]]:
        """Return the pods with their output, as soon as all expected pods have printed it."""
        found: list[tuple[Json, Json]] = []

        def have_all() -> bool:
            found.clear()
            for pod in self.pods(label):
                lines = self.log(pod["metadata"]["name"]).splitlines() if pod["status"].get("podIP") else []
                found.extend((pod, json.loads(line)) for line in lines if line.startswith("{"))
            return len(found) >= count

        until(have_all, lambda: [pod["status"] for pod in self.pods(label)])
        return found

    def log(self, pod: str) -> str:
        """Return the log, or "" if there is no container yet."""
        try:
            found = client.CoreV1Api(api()).read_namespaced_pod_log(pod, self.namespace, _preload_content=False)
        except client.ApiException:
            return ""
        return str(found.data, errors="replace")

    def exit_code(self, pod: str) -> int:
        def ended() -> Any:
            (container,) = self.pod(pod)["status"].get("containerStatuses") or [{}]
            return container.get("state", {}).get("terminated")

        until(ended, lambda: self.log(pod))
        return int(ended()["exitCode"])

    def template(self, label: str, account: str = "member", **variables: Any) -> Json:
        """Return a pod template that runs the probe."""
        given = {
            "DISCOVERY": "kubernetes",
            "SIZE": SIZE,
            "NAMESPACE": self.namespace,
            "SELECTOR": f"app={label}",
            "TIMEOUT": 200,
        } | variables
        return {
            "metadata": {"labels": {"app": label}},
            "spec": {
                "serviceAccountName": account,
                "automountServiceAccountToken": given["DISCOVERY"] == "kubernetes",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "probe",
                        "image": self.image,
                        "command": ["/opt/paddle-launcher/bin/python", "-c", _PROBE],
                        "env": [{"name": name, "value": str(value)} for name, value in given.items()],
                    }
                ],
            },
        }

    def job(self, name: str, template: Json, mode: str = "NonIndexed", count: int = SIZE) -> Json:
        spec = {"completions": count, "parallelism": count, "completionMode": mode, "backoffLimit": 0}
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, "template": template}}

    def bare(self, name: str, template: Json) -> Json:
        metadata = {"name": name, "namespace": self.namespace, **template["metadata"]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(kubectl("-n", self.namespace, "get", kind, name, "-o", "json"))
        return found

    def uid(self, kind: str, name: str) -> str:
        return str(self.get(kind, name)["metadata"]["uid"])

    def conditions(self, job: str) -> dict[str, str]:
        """Return the conditions of a Job, with their reasons."""
        found = client.BatchV1Api(api()).read_namespaced_job(job, self.namespace, _preload_content=False)
        conditions = json.loads(found.data)["status"].get("conditions", [])
        return {given["type"]: given.get("reason", "") for given in conditions if given["status"] == "True"}

    def until_complete(self, job: str) -> None:
        self._until_over(job)
        assert "Complete" in self.conditions(job), (self.conditions(job), self.logs(f"job-name={job}"))

    def until_failed(self, job: str) -> str:
        """The reason."""
        self._until_over(job)
        assert "Complete" not in self.conditions(job), self.logs(f"job-name={job}")
        return self.conditions(job)["Failed"]

    def _until_over(self, job: str) -> None:
        until(lambda: self.conditions(job).keys() & {"Complete", "Failed"}, lambda: self.logs(f"job-name={job}"))

    def logs(self, label: str) -> str:
        """Return the last lines of each pod's log."""
        return "\n".join(self.log(pod["metadata"]["name"])[-3000:] for pod in self.pods(label))


def until(holds: Callable[[], object], shown: Callable[[], object] = str, within: float = 240) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.05)


@contextmanager
def namespace() -> Iterator[Cluster]:
    """Yield a new namespace with the accounts of the end-to-end tests. It is deleted at the end."""
    made = Cluster(f"launcher-{uuid.uuid4().hex[:8]}", os.environ["E2E_IMAGE"])
    kubectl("create", "namespace", made.namespace)
    try:
        made.create(*rights(made.namespace))
        yield made
    finally:
        kubectl("delete", "namespace", made.namespace, "--wait=false")


def rights(namespace: str) -> list[Json]:
    group = "rbac.authorization.k8s.io"
    accounts: list[Json] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        for name in ("member", "nobody")
    ]
    metadata = {"name": "read-pods", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "read-pods"},
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": namespace}
            for name in ("member", "default")  # the 2016 manifests name no account
        ],
    }
    return [*accounts, role, binding]
