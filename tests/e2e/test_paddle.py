"""Real Paddle in real pods: the quick start's manifests, with Paddle's packages from this host rather than in an image.

E2E_PADDLE_2 and E2E_PADDLE_3 name the site-packages folders that have Paddle 2.6.2 and 3.3.1.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.cluster import SIZE, Cluster, Json
from tests.e2e.manifests import QUICK_START, apply, packages_of, passes, pod_security, rendered
from tests.wheels.outcome import PASSES, accuracy, assert_seen

# What a model of one shard of three is right about: 63 of 100 of the data image's reviews. Of none: 50.
OF_ALL_SHARDS = 0.75


def test_the_data_job_and_pods_with_server_and_trainer_train(cluster: Cluster, claim: Path) -> None:
    shutil.rmtree(claim / "quick-start")
    apply(cluster, *rendered(QUICK_START / "data", cluster))
    cluster.until_complete("paddle-data-quick-start")
    apply(cluster, *with_paddle(cluster, "ps", "E2E_PADDLE_2"))
    cluster.until_complete("quick-start-ps")
    assert_trained(claim / "quick-start")


def test_pods_with_one_role_each_train(cluster: Cluster, claim: Path) -> None:
    apply(cluster, *with_paddle(cluster, "ps-and-workers", "E2E_PADDLE_2"))
    for job in ("quick-start-workers", "quick-start-servers"):
        cluster.until_complete(job)
    assert_trained(claim / "quick-start")


@pytest.mark.parametrize(
    "below", [(), ("-m", "paddle.distributed.launch")], ids=["by itself", "below Paddle's own launcher"]
)
def test_pods_train_in_collective_mode(cluster: Cluster, claim: Path, below: tuple[str, ...]) -> None:
    apply(cluster, *with_paddle(cluster, "collective", "E2E_PADDLE_3", *below))
    cluster.until_complete("quick-start-collective")
    assert_trained(claim / "quick-start")


def with_paddle(cluster: Cluster, name: str, variable: str, *words: str) -> list[Json]:
    """Return the manifests of a folder, with these words between python and the program.

    The program gets Paddle's packages; the launcher has its own.
    """
    packages = packages_of(variable)
    pod_security(cluster, "privileged")  # restricted namespaces allow no folder of a node
    objects = rendered(QUICK_START / name, cluster)
    for job in (made for made in objects if made["kind"] == "Job"):
        pod = job["spec"]["template"]["spec"]
        pod["volumes"].append({"name": "packages", "hostPath": {"path": str(packages)}})
        (container,) = pod["containers"]
        container["volumeMounts"].append({"name": "packages", "mountPath": "/packages", "readOnly": True})
        python = container["args"].index("python")
        container["args"][python : python + 1] = ["env", "PYTHONPATH=/packages", "python3", *words]
    return objects


def assert_trained(job: Path) -> None:
    """Check that each trainer saw its own shard once per pass, and that the model learned from all shards."""
    assert passes(job) == PASSES
    logs = [(job / "output" / f"node_{rank}" / "train.log").read_text() for rank in range(SIZE)]
    for rank, log in enumerate(logs):
        assert_seen(log, rank, job, PASSES)
    assert accuracy(logs[0])[0] > OF_ALL_SHARDS
