"""Manifests as users apply them: the 2016 manifests except image and volume, our own in k8s/, and quick_start/v0."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.manifests import QUICK_START, apply, for_one_trainer, overlay, passes, pod_security, rendered
from tests.support.paths import K8S

MANIFESTS_2016 = Path(__file__).parent / "manifests_2016"


def manifest_of_2016(name: str, image: str, volume: Path) -> Json:
    """Return an unchanged manifest of 2016, except for its image and volume."""
    manifest: Json = yaml.safe_load((MANIFESTS_2016 / name).read_text().replace("[YOUR_REPO]/paddle:mypaddle", image))
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": given["name"], "hostPath": {"path": str(volume)}} for given in spec["volumes"]]
    for container in spec["containers"]:
        container.update(image=image, imagePullPolicy="IfNotPresent")
    return manifest


def in_namespace(cluster: Cluster, manifest: Json) -> None:
    """Set the namespace of the test. The 2016 manifests use `default`."""
    variables = {entry["name"]: entry for entry in manifest["spec"]["template"]["spec"]["containers"][0]["env"]}
    variables["JOB_NAMESPACE"]["value"] = cluster.namespace


def test_the_2016_manifest_001_runs_unchanged_except_image_and_volume(cluster: Cluster, volume: Path) -> None:
    job = volume / "paddle-cluster-job"
    (volume / "quick-start").rename(job)
    (job / "quick_start").rename(job / "recommendation")
    (job / "recommendation" / "trainer_config.lr.py").rename(job / "recommendation" / "trainer_config.py")
    manifest = manifest_of_2016("job-001.yaml", cluster.image, volume)
    in_namespace(cluster, manifest)
    apply(cluster, manifest)
    cluster.until_complete("paddle-cluster-job")
    assert len(list((job / "output").glob("pass-*/done"))) == 10
    for rank in range(3):
        assert (job / "output" / f"node_{rank}" / "server.log").stat().st_size
        assert (job / "output" / f"node_{rank}" / "train.log").stat().st_size


def test_the_data_job_of_2016_manifest_001_makes_shards_on_the_volume(cluster: Cluster, tmp_path: Path) -> None:
    manifest = manifest_of_2016("data-001.yaml", os.environ["E2E_DATA_IMAGE"], tmp_path)
    mount = manifest["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]
    mount["mountPath"] = "/home/work/mfs"  # the 2016 manifest mounts /mnt, so its shards would be lost with the pod
    apply(cluster, manifest)
    cluster.until_complete("paddle-data")
    made = tmp_path / "paddle-cluster-job"
    assert sorted(path.name for path in made.iterdir() if not path.name.startswith(".")) == [
        "0", "1", "2", "output", "quick_start"
    ]  # fmt: skip


@pytest.mark.node_ports
def test_the_2016_manifests_004_shard_and_train_with_ports_of_the_nodes(cluster: Cluster, tmp_path: Path) -> None:
    apply(cluster, manifest_of_2016("data-004.yaml", os.environ["E2E_DATA_IMAGE"], tmp_path))
    cluster.until_complete("paddle-data")
    manifest = manifest_of_2016("job-004.yaml", cluster.image, tmp_path)
    in_namespace(cluster, manifest)
    apply(cluster, manifest)
    cluster.until_complete("paddle-cluster-job")
    assert passes(tmp_path / "paddle-cluster-job") == 10
    nodes = {pod["spec"]["nodeName"] for pod in cluster.pods("job-name=paddle-cluster-job")}
    assert len(nodes) == 3, "two pods with the same hostPort share a node"


@pytest.mark.parametrize(("name", "job"), [("job", "paddle-cluster-job"), ("job-indexed", "paddle-indexed-job")])
def test_our_jobs_train_as_an_unprivileged_user(cluster: Cluster, claim: Path, name: str, job: str) -> None:
    (claim / "quick-start").rename(claim / job)
    apply(cluster, *rendered(K8S / name, cluster))
    cluster.until_complete(job)
    assert passes(claim / job) == 10
    assert {path.stat().st_uid for path in (claim / job / "output").glob("node_*/status.json")} == {10001}


@pytest.mark.parametrize(
    "options",
    [("shm", "network-policy"), pytest.param(("host-network", "host-ports"), marks=pytest.mark.node_ports)],
    ids="+".join,
)
def test_our_jobs_train_with_options(cluster: Cluster, claim: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    (claim / "quick-start").rename(claim / "paddle-cluster-job")
    if "host-network" in options:
        pod_security(cluster, "privileged")  # restricted namespaces allow neither host network nor host ports
    apply(cluster, *rendered(overlay(tmp_path, "job", *options), cluster))
    cluster.until_complete("paddle-cluster-job")
    assert passes(claim / "paddle-cluster-job") == 10


def test_our_data_job_makes_the_shards_that_the_training_job_takes(cluster: Cluster, claim: Path) -> None:
    apply(cluster, *rendered(K8S / "data-job", cluster))
    cluster.until_complete("paddle-data")
    apply(cluster, *rendered(K8S / "job", cluster))
    cluster.until_complete("paddle-cluster-job")
    assert passes(claim / "paddle-cluster-job") == 10


def test_the_quick_start_for_paddle_v0_trains_on_the_shards_of_its_name(cluster: Cluster, claim: Path) -> None:
    apply(cluster, *rendered(QUICK_START / "v0", cluster))
    cluster.until_complete("quick-start-v0")
    assert passes(claim / "quick-start") == 5


# A server that listens and a trainer that reaches all servers: the images of these tests have no Paddle of today.
_PROGRAM = """
import os, signal, socket
if os.environ["TRAINING_ROLE"] == "PSERVER":
    host, _, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rpartition(":")
    door = socket.create_server((host, int(port)))
    signal.pause()
for server in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(","):
    host, _, port = server.rpartition(":")
    socket.create_connection((host, int(port)), 5)
print("reached all from", os.environ["PADDLE_TRAINER_ID"], flush=True)
"""


def roles(cluster: Cluster, claim: Path) -> list[Json]:
    (claim / "quick-start").rename(claim / "paddle-ps")
    made = rendered(K8S / "ps-and-workers", cluster)
    for job in (each for each in made if each["kind"] == "Job"):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["args"] = ["run", "--", "python3", "-c", _PROGRAM]
    return made


def test_servers_and_workers_of_two_jobs_are_one_gang_and_complete_together(cluster: Cluster, claim: Path) -> None:
    apply(cluster, *roles(cluster, claim))
    cluster.until_complete("paddle-worker")
    cluster.until_complete("paddle-ps")
    assert_both_roles_were_there(claim / "paddle-ps")


def test_servers_and_workers_of_two_stateful_sets_are_one_gang(cluster: Cluster, claim: Path) -> None:
    made = roles(cluster, claim)
    apply(cluster, *(as_stateful_set(each) if each["kind"] == "Job" else each for each in made))
    until(lambda: phases(claim / "paddle-ps") == ["complete"] * 5, lambda: cluster.logs("app.kubernetes.io/managed-by"))
    assert_both_roles_were_there(claim / "paddle-ps")


def as_stateful_set(job: Json) -> Json:
    """Pods have ordinals, and Kubernetes restarts them after each end. So they stay after the job is complete."""
    template = job["spec"]["template"]
    name, labels = job["metadata"]["name"], template["metadata"]["labels"] | {"role": job["metadata"]["name"]}
    template["metadata"]["labels"] = labels
    template["spec"].pop("restartPolicy")
    (container,) = template["spec"]["containers"]
    of_jobs = ("LAUNCHER_JOB_ID", "LAUNCHER_BACKOFF_LIMIT", "LAUNCHER_FAILURE_POLICY")
    container["env"] = [entry for entry in container["env"] if entry["name"] not in of_jobs]
    container["env"] += [{"name": "LAUNCHER_STAY", "value": "1"}, {"name": "LAUNCHER_JOB_ID", "value": name}]
    spec = {
        "replicas": job["spec"]["completions"],
        "serviceName": template["spec"].pop("subdomain"),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"role": name}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


def assert_both_roles_were_there(folder: Path) -> None:
    for number in range(3):
        log = folder / "output" / f"node_{number}" / "train.log"
        assert f"reached all from {number}" in log.read_text()
    assert len(list((folder / "output").glob("pserver_*/server.log"))) == 2


def test_the_servers_job_fails_for_good_together_with_the_workers_job(cluster: Cluster, claim: Path) -> None:
    made = roles(cluster, claim)
    (claim / "paddle-ps" / "1").rename(claim / "paddle-ps" / "one")
    apply(cluster, *made)
    assert cluster.until_failed("paddle-worker") == "PodFailurePolicy"
    assert cluster.until_failed("paddle-ps") == "PodFailurePolicy"
    ended = [pod["status"].get("containerStatuses", [{}])[0] for pod in cluster.pods("job-name=paddle-ps")]
    assert 71 in [each.get("state", {}).get("terminated", {}).get("exitCode") for each in ended]


def test_our_single_job_trains_without_peers(cluster: Cluster, claim: Path) -> None:
    (claim / "quick-start").rename(claim / "quickstart")
    for_one_trainer(claim / "quickstart")
    apply(cluster, *rendered(K8S / "single", cluster))
    cluster.until_complete("quickstart")
    assert passes(claim / "quickstart") == 15
    assert not (claim / "quickstart" / "output" / "node_0" / "server.log").exists()


def test_a_stateful_set_idles_after_success_and_trains_again_when_its_template_changes(
    cluster: Cluster, claim: Path
) -> None:
    job = claim / "paddle-set"
    (claim / "quick-start").rename(job)
    objects = rendered(K8S / "statefulset", cluster)
    apply(cluster, *objects)
    until(lambda: phases(job) == ["complete"] * 3, lambda: phases(job))
    until(lambda: ready(cluster) == 3, lambda: ready(cluster))
    first = [folder.stat().st_mtime for folder in (job / "output").glob("pass-*/done")]
    restarts = {pod["status"]["containerStatuses"][0]["restartCount"] for pod in cluster.pods(_OF_THE_SET)}
    assert restarts == {0}
    (changed,) = (made for made in objects if made["kind"] == "StatefulSet")
    changed["spec"]["template"]["metadata"]["labels"]["run"] = "2"
    apply(cluster, changed)
    until(lambda: retrained(job, max(first)), lambda: phases(job))


def test_a_stateful_set_that_waits_for_each_pod_to_be_ready_trains_too(cluster: Cluster, claim: Path) -> None:
    (claim / "quick-start").rename(claim / "paddle-set")
    objects = rendered(K8S / "statefulset", cluster)
    (made,) = (made for made in objects if made["kind"] == "StatefulSet")
    made["spec"]["podManagementPolicy"] = "OrderedReady"
    apply(cluster, *objects)
    until(lambda: phases(claim / "paddle-set") == ["complete"] * 3, lambda: cluster.logs(_OF_THE_SET))


_OF_THE_SET = "app.kubernetes.io/instance=paddle-set"


def phases(job: Path) -> list[str]:
    found = sorted((job / "output").glob("*_*/status.json"))
    return [json.loads(path.read_text())["phase"] for path in found]


def ready(cluster: Cluster) -> int:
    text = kubectl(
        "-n", cluster.namespace, "get", "statefulset", "paddle-set", "-o", "jsonpath={.status.readyReplicas}"
    )
    return int(text or 0)


def retrained(job: Path, before: float) -> bool:
    newest = [done.stat().st_mtime for done in (job / "output").glob("pass-00009/done")]
    return bool(newest) and newest[0] > before and phases(job) == ["complete"] * 3


@pytest.mark.parametrize("name", sorted(path.name for path in (K8S / "volumes").iterdir()))
def test_volumes_are_valid_to_the_api_server(cluster: Cluster, name: str) -> None:
    made: Json = {"kind": "List", "apiVersion": "v1", "items": rendered(K8S / "volumes" / name, cluster)}
    kubectl("-n", cluster.namespace, "apply", "--dry-run=server", "-f", "-", given=made)


@pytest.mark.parametrize("option", sorted(path.name for path in (K8S / "options").iterdir()))
@pytest.mark.parametrize("name", ["heter", "job", "job-indexed", "ps-and-workers", "statefulset"])
def test_every_option_can_be_combined_with_every_job(cluster: Cluster, tmp_path: Path, name: str, option: str) -> None:
    plain, made = rendered(K8S / name, cluster), rendered(overlay(tmp_path, name, option), cluster)
    assert made != plain
    known = [each for each in made if each["kind"] != "PodGroup"]  # Volcano may not be installed
    given: Json = {"kind": "List", "apiVersion": "v1", "items": known}
    kubectl("-n", cluster.namespace, "apply", "--dry-run=server", "-f", "-", given=given)
