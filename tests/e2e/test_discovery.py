"""Finding peers on a real cluster: KUBECONFIG says which, E2E_IMAGE names an image with this package in it."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.addresses import sort_key

Json = dict[str, Any]

_PROBE = (Path(__file__).parent / "probe.py").read_text()
_SIZE = 3


def kubectl(*arguments: str, given: Json | None = None) -> str:
    text = json.dumps(given) if given else None
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Cluster:
    """One fresh namespace, where service account `member` may read pods, and `nobody` may not."""

    def __init__(self, namespace: str, image: str) -> None:
        self.namespace = namespace
        self.image = image

    def create(self, *objects: Json) -> None:
        kubectl("-n", self.namespace, "create", "-f", "-", given={"kind": "List", "apiVersion": "v1", "items": objects})

    def pods(self, label: str) -> list[Json]:
        found: Json = json.loads(kubectl("-n", self.namespace, "get", "pods", "-l", label, "-o", "json"))
        return list(found["items"])

    def results(self, label: str, count: int = _SIZE) -> list[tuple[Json, Json]]:
        """The pods with what they printed, once all that are wanted have printed it."""
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
        done = subprocess.run(
            ["kubectl", "-n", self.namespace, "logs", pod], capture_output=True, text=True, timeout=60
        )
        return done.stdout  # empty as long as there is no container

    def exit_code(self, pod: str) -> int:
        def code() -> Any:
            return kubectl(
                "-n",
                self.namespace,
                "get",
                "pod",
                pod,
                "-o",
                "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}",
            )

        until(code)
        return int(code())

    def template(self, label: str, account: str = "member", **variables: Any) -> Json:
        """A pod template that runs the probe."""
        given = {
            "DISCOVERY": "kubernetes",
            "SIZE": _SIZE,
            "NAMESPACE": self.namespace,
            "SELECTOR": f"app={label}",
            "TIMEOUT": 90,
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
                        "command": ["python3", "-c", _PROBE],
                        "env": [{"name": name, "value": str(value)} for name, value in given.items()],
                    }
                ],
            },
        }

    def job(self, name: str, template: Json, mode: str = "NonIndexed", count: int = _SIZE) -> Json:
        spec = {"completions": count, "parallelism": count, "completionMode": mode, "backoffLimit": 0}
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, "template": template}}

    def bare(self, name: str, template: Json) -> Json:
        metadata = {"name": name, "namespace": self.namespace, **template["metadata"]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    def uid(self, kind: str, name: str) -> str:
        return kubectl("-n", self.namespace, "get", kind, name, "-o", "jsonpath={.metadata.uid}")


def until(holds: Callable[[], object], shown: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    assert os.environ.get("KUBECONFIG"), "KUBECONFIG must name a cluster's configuration"
    assert os.environ.get("E2E_IMAGE"), "E2E_IMAGE must name an image with this package that the cluster's nodes have"
    made = Cluster(f"discovery-{uuid.uuid4().hex[:8]}", os.environ["E2E_IMAGE"])
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
        "subjects": [{"kind": "ServiceAccount", "name": "member", "namespace": namespace}],
    }
    return [*accounts, role, binding]


def by_rank(results: list[tuple[Json, Json]]) -> list[tuple[Json, Json]]:
    return sorted(results, key=lambda result: int(result[1]["rank"]))


def all_agree(results: list[tuple[Json, Json]], hub: Json) -> None:
    for pod, found in results:
        mine = pod["metadata"]["uid"] == hub["metadata"]["uid"]
        assert found["hub"] == (None if mine else hub["status"]["podIP"])
        assert found["address"] == pod["status"]["podIP"]


def test_pods_of_a_plain_job_take_the_lowest_address(cluster: Cluster) -> None:
    cluster.create(cluster.job("plain", cluster.template("plain")))
    results = cluster.results("app=plain")
    all_agree(results, min((pod for pod, _ in results), key=lambda pod: sort_key(pod["status"]["podIP"])))
    assert {found["identity"] for _, found in results} == {cluster.uid("job", "plain")}
    assert {found["rank"] for _, found in results} == {None}
    assert all(found["uid"] == pod["metadata"]["uid"] for pod, found in results)


def test_pods_of_an_indexed_job_take_their_index(cluster: Cluster) -> None:
    cluster.create(cluster.job("indexed", cluster.template("indexed"), "Indexed"))
    results = by_rank(cluster.results("app=indexed"))
    label = "batch.kubernetes.io/job-completion-index"
    assert [int(pod["metadata"]["labels"][label]) for pod, _ in results] == [0, 1, 2]
    assert [found["rank"] for _, found in results] == [0, 1, 2]
    all_agree(results, results[0][0])
    assert {found["identity"] for _, found in results} == {cluster.uid("job", "indexed")}


def test_names_of_an_indexed_job_need_no_rights(cluster: Cluster) -> None:
    template = cluster.template("named", "nobody", DISCOVERY="dns", SERVICE="named")
    template["spec"]["subdomain"] = "named"
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "named"}, "ports": [{"port": 1}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "named"}, "spec": spec}
    cluster.create(service, cluster.job("named", template, "Indexed"))
    results = by_rank(cluster.results("app=named"))
    assert [found["rank"] for _, found in results] == [0, 1, 2]
    all_agree(results, results[0][0])


def test_pods_of_a_stateful_set_take_their_ordinal(cluster: Cluster) -> None:
    template = cluster.template("set", STAY=600)
    template["spec"]["restartPolicy"] = "Always"
    cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "set"},
            "spec": {
                "replicas": _SIZE,
                "serviceName": "set",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "set"}},
                "template": template,
            },
        }
    )
    results = by_rank(cluster.results("app=set"))
    assert [pod["metadata"]["name"] for pod, _ in results] == ["set-0", "set-1", "set-2"]
    all_agree(results, results[0][0])
    revision = results[0][0]["metadata"]["labels"]["controller-revision-hash"]
    assert {found["identity"] for _, found in results} == {f"{cluster.uid('statefulset', 'set')}-{revision}"}


def test_without_the_right_it_ends_with_77_and_the_role_to_apply(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(cluster.bare("denied", cluster.template("denied", "nobody")))
    ((_, found),) = cluster.results("app=denied", 1)
    assert cluster.exit_code("denied") == 77
    account = f"service account nobody of namespace {cluster.namespace}"
    assert f"the API server does not let {account} list pods in namespace {cluster.namespace}" in found["failure"]
    (tmp_path / "role.yaml").write_text(found["failure"].partition("\n")[2])
    kubectl("apply", "-f", str(tmp_path / "role.yaml"))
    user = f"--as=system:serviceaccount:{cluster.namespace}:nobody"
    for verb in ("get", "list", "watch"):
        assert kubectl("auth", "can-i", verb, "pods", "-n", cluster.namespace, user) == "yes\n"


def test_a_pending_pod_is_named_at_the_deadline(cluster: Cluster) -> None:
    template = cluster.template("stuck", TIMEOUT=8)
    nowhere = cluster.template("stuck")
    nowhere["spec"]["nodeSelector"] = {"there-is": "no-such-node"}
    members = [cluster.bare(name, template) for name in ("stuck-a", "stuck-b")]
    cluster.create(*members, cluster.bare("stuck-c", nowhere))
    for pod, found in cluster.results("app=stuck", 2):
        assert cluster.exit_code(pod["metadata"]["name"]) == 75
        assert "2 of 3; stuck-c is Pending: Unschedulable: 0/" in found["failure"]


def test_what_became_of_a_peer_can_be_asked(cluster: Cluster) -> None:
    quits = cluster.template("asked")
    quits["spec"]["containers"][0]["command"] = ["python3", "-c", "import sys; sys.exit(3)"]
    asks = cluster.template("asked", ASK="quits")
    cluster.create(cluster.bare("quits", quits), cluster.bare("asks", asks))
    ((_, found),) = cluster.results("app=asked", 1)
    assert found["became"] == "Error, exit code 3"
