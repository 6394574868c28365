"""Gang scheduling by Volcano, on clusters that have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, overlay, passes, rendered
from tests.e2e.seats import Seat, nodes


def blockers(cluster: Cluster, count: int, seat: Seat) -> None:
    """Return pods that take the seats of this number of nodes."""
    sleep = {"name": "sleep", "image": cluster.image, "command": ["sleep", "600"], "resources": seat.taken()}
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
def test_a_job_that_does_not_fit_starts_no_pod_until_there_is_room_for_all_pods(
    cluster: Cluster, seat: Seat, claim: Path, tmp_path: Path
) -> None:
    blockers(cluster, len(nodes()) - SIZE + 1, seat)
    objects = rendered(overlay(tmp_path, "job-indexed", "volcano"), cluster)
    (job,) = (made for made in objects if made["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = seat.taken()
    name = job["metadata"]["name"]
    (claim / "quick-start").rename(claim / name)

    apply(cluster, *objects)
    until(lambda: held_back(cluster.pods(f"job-name={name}")), lambda: groups(cluster))
    assert "NotEnoughResources" in groups(cluster)

    kubectl("-n", cluster.namespace, "delete", "pod", "blocker-0", "--wait=false")
    cluster.until_complete(name)
    assert passes(claim / name) == 10


def held_back(pods: list[Json]) -> bool:
    """Return whether the scheduler has handled each pod and has bound no pod."""
    seen = [given for pod in pods for given in pod["status"].get("conditions", []) if given["type"] == "PodScheduled"]
    return [given["status"] for given in seen] == ["False"] * SIZE


def groups(cluster: Cluster) -> str:
    return kubectl("-n", cluster.namespace, "get", "podgroups.scheduling.volcano.sh", "-o", "json")
