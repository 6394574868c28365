"""Gang scheduling by Volcano, on clusters that have it: `cluster volcano` starts it where the tests are at home."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, overlay, passes, rendered

GROUPS = "podgroups.scheduling.volcano.sh"


def volcano_is_there() -> None:
    """Else the test is skipped."""
    if subprocess.run(["kubectl", "get", "crd", GROUPS], capture_output=True).returncode:
        pytest.skip("this cluster has no Volcano")


@pytest.fixture
def volcano() -> None:
    volcano_is_there()


def cores(quantity: str) -> float:
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def blockers(cluster: Cluster, count: int, request: dict[str, str]) -> None:
    """Pods that take their share of as many nodes, two of them never on one."""
    sleep = {"name": "sleep", "image": cluster.image, "command": ["sleep", "600"], "resources": {"requests": request}}
    sleep["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [sleep],
    }
    names = [f"blocker-{number}" for number in range(count)]
    template = {"metadata": {"labels": {"app": "blocker"}}, "spec": spec}
    cluster.create(*(cluster.bare(name, template) for name in names))
    until(lambda: [pod["status"]["phase"] for pod in cluster.pods("app=blocker")] == ["Running"] * count)


@pytest.mark.usefixtures("volcano")
def test_a_job_that_does_not_fit_starts_none_of_its_pods_and_all_when_room_is_made(
    cluster: Cluster, claim: Path, tmp_path: Path
) -> None:
    nodes = json_of("nodes")
    share = min(cores(node["status"]["allocatable"]["cpu"]) for node in nodes) * 0.6  # one such pod a node
    request = {"cpu": f"{int(share * 1000)}m"}
    blockers(cluster, len(nodes) - SIZE + 1, request)
    objects = rendered(overlay(tmp_path, "job-indexed", "volcano"), cluster)
    (job,) = (made for made in objects if made["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": request}
    name = job["metadata"]["name"]
    (claim / "quick-start").rename(claim / name)

    apply(cluster, *objects)
    until(lambda: held_back(cluster.pods(f"job-name={name}")), lambda: json_of(GROUPS, cluster))
    assert "NotEnoughResources" in str(json_of(GROUPS, cluster))

    kubectl("-n", cluster.namespace, "delete", "pod", "blocker-0", "--wait=false")
    cluster.until_complete(name)
    assert passes(claim / name) == 10


def held_back(pods: list[Json]) -> bool:
    """The scheduler has looked at each of the pods and has bound none."""
    seen = [given for pod in pods for given in pod["status"].get("conditions", []) if given["type"] == "PodScheduled"]
    return [given["status"] for given in seen] == ["False"] * SIZE


def json_of(kind: str, cluster: Cluster | None = None) -> list[Json]:
    where = ["-n", cluster.namespace] if cluster else []
    text = kubectl(*where, "get", kind, "-o", "yaml")
    return list(yaml.safe_load(text)["items"])
