"""Ranks by addresses that sort differently as text and as numbers.

The file's name puts it first: on a fresh cluster the next such addresses are near.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from itertools import count

import pytest

from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.e2e.pods import MISSING_IMAGE, name_of, scale
from tests.e2e.training import Training

_BATCH = 10
_MOST = 260  # placeholders; a node usually has fewer addresses


@pytest.mark.timeout(300)  # up to 260 pods must come and go
def test_ranks_follow_addresses_as_numbers_and_not_as_text(training: Training) -> None:
    node = any_node(training.cluster)

    def on_one_node(job: Json) -> None:
        job["spec"]["parallelism"] = 1
        job["spec"]["template"]["spec"]["nodeName"] = node

    training.submit("--num_passes=2", change=on_one_node)
    until(lambda: addresses(training.pods()), training.logs)
    (first,) = addresses(training.pods())
    take_addresses(training.cluster, node, lambda last: sort_differently(first, last))
    scale(training, SIZE)
    training.until_complete()

    in_order = [member["address"] for member in training.job_file()["members"]]
    assert in_order == sorted(in_order, key=as_number) != sorted(in_order)
    pods = {pod["status"]["podIP"]: name_of(pod) for pod in training.pods()}
    assert [member["pod"] for member in training.status()] == [pods[address] for address in in_order]
    for rank in range(SIZE):
        started = (training.output / f"node_{rank}" / "train.log").read_text()
        assert f"--trainer_id={rank} " in started
        assert f"--pservers={','.join(in_order)} " in started


def any_node(cluster: Cluster) -> str:
    """Return a node to which pods can be scheduled."""
    cluster.create(cluster.bare("anywhere", placeholder()))
    until(lambda: cluster.pod("anywhere")["spec"].get("nodeName"))
    return str(cluster.pod("anywhere")["spec"]["nodeName"])


def take_addresses(cluster: Cluster, node: str, enough: Callable[[str], bool]) -> None:
    """Use up addresses of a node until it assigns one of the wanted addresses."""
    for batch in count():
        assert batch * _BATCH < _MOST, f"after {_MOST} pods {node} has given no such address"
        if all(map(enough, given(cluster, node, f"placeholder-{batch}"))):
            return


def given(cluster: Cluster, node: str, label: str) -> list[str]:
    """Return the next addresses of a node."""
    cluster.create(*(cluster.bare(f"{label}-{number}", placeholder(label, node)) for number in range(_BATCH)))
    until(lambda: len(addresses(cluster.pods(f"app={label}"))) == _BATCH)
    found = addresses(cluster.pods(f"app={label}"))
    kubectl("-n", cluster.namespace, "delete", "pods", "-l", f"app={label}", "--wait=false")
    return found


def placeholder(label: str = "placeholder", node: str | None = None) -> Json:
    """Return a pod that gets an address but never runs, because it waits for its image."""
    container = {"name": "none", "image": MISSING_IMAGE, "imagePullPolicy": "Never"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False}
    return {"metadata": {"labels": {"app": label}}, "spec": spec | ({"nodeName": node} if node else {})}


def addresses(pods: list[Json]) -> list[str]:
    return [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]


def sort_differently(one: str, other: str) -> bool:
    return (one < other) != (as_number(one) < as_number(other))


def as_number(address: str) -> int:
    return int(ip_address(address))
