"""Gang scheduling by Volcano, on clusters that have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, for_one_trainer, overlay, passes, rendered
from tests.e2e.seats import Seat, nodes
from tests.support.rendering import SERVERS_AND_TRAINERS

SERVERS_AND_WORKERS = 5  # pods of k8s/ps-and-workers


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


@pytest.mark.usefixtures("volcano")
def test_servers_and_trainers_are_one_gang_of_which_no_pod_starts_before_all(
    cluster: Cluster, seat: Seat, claim: Path, tmp_path: Path
) -> None:
    """Each role alone would fit: Volcano must count the pods of both Jobs."""
    seat.offer(2, *nodes())
    blockers(cluster, 2 * len(nodes()) - SERVERS_AND_WORKERS + 1, seat)
    objects = rendered(overlay(tmp_path, "ps-and-workers", "volcano"), cluster)
    (claim / "quick-start").rename(claim / "paddle-ps")
    for job in (made for made in objects if made["kind"] == "Job"):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["resources"] = seat.taken()
        container["args"] = ["run", "--", "python3", "-c", SERVERS_AND_TRAINERS]

    apply(cluster, *objects)
    both = "job-name in (paddle-ps, paddle-worker)"
    until(lambda: held_back(cluster.pods(both), SERVERS_AND_WORKERS), lambda: groups(cluster))

    kubectl("-n", cluster.namespace, "delete", "pod", "blocker-0", "--wait=false")
    for name in ("paddle-ps", "paddle-worker"):
        cluster.until_complete(name)


@pytest.mark.usefixtures("volcano")
def test_a_single_pod_is_scheduled(cluster: Cluster, claim: Path, tmp_path: Path) -> None:
    (job,) = rendered(overlay(tmp_path, "single", "volcano"), cluster)
    name = job["metadata"]["name"]
    (claim / "quick-start").rename(claim / name)
    for_one_trainer(claim / name)
    apply(cluster, job)
    cluster.until_complete(name)


def held_back(pods: list[Json], count: int = SIZE) -> bool:
    """Return whether the scheduler has handled each pod and has bound no pod."""
    seen = [given for pod in pods for given in pod["status"].get("conditions", []) if given["type"] == "PodScheduled"]
    return [given["status"] for given in seen] == ["False"] * count


def groups(cluster: Cluster) -> str:
    return kubectl("-n", cluster.namespace, "get", "podgroups.scheduling.volcano.sh", "-o", "json")
