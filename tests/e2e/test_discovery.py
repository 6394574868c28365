"""Finding peers on a real cluster."""

from __future__ import annotations

from pathlib import Path

from launcher.base.host import address_order
from tests.e2e.cluster import SIZE, Cluster, Json, kubectl


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
    all_agree(results, min((pod for pod, _ in results), key=lambda pod: address_order(pod["status"]["podIP"])))
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


def test_names_of_an_indexed_job_need_no_rbac_permissions(cluster: Cluster) -> None:
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
                "replicas": SIZE,
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


def test_without_the_rbac_permission_the_launcher_ends_with_77_and_the_role_to_apply(
    cluster: Cluster, tmp_path: Path
) -> None:
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
    template = cluster.template("stuck", TIMEOUT=30)
    nowhere = cluster.template("stuck")
    nowhere["spec"]["nodeSelector"] = {"there-is": "no-such-node"}
    members = [cluster.bare(name, template) for name in ("stuck-a", "stuck-b")]
    cluster.create(*members, cluster.bare("stuck-c", nowhere))
    results = cluster.results("app=stuck", 2)
    for pod, found in results:
        assert cluster.exit_code(pod["metadata"]["name"]) == 75
        assert "stuck-c is Pending: Unschedulable: 0/" in found["failure"]
    assert any(
        "2 of 3; " in found["failure"] for _, found in results
    )  # the second pod may see that the first pod has ended


def test_the_end_of_a_peer_can_be_asked(cluster: Cluster) -> None:
    quits = cluster.template("asked")
    quits["spec"]["containers"][0]["command"] = ["python3", "-c", "import sys; sys.exit(3)"]
    asks = cluster.template("asked", ASK="quits")
    cluster.create(cluster.bare("quits", quits), cluster.bare("asks", asks))
    ((_, found),) = cluster.results("app=asked", 1)
    assert found["became"] == "Error, exit code 3"
