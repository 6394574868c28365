"""Jobs that `submit` has not made are found by their names, as `list` shows them."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.errors import Failure
from launcher.job.access import connect
from launcher.job.logs import read_log
from launcher.job.lookup import read_state
from tests.support.fake_cluster import FakeCluster
from tests.support.submitted import command, ended, running
from tests.support.workloads import put_manifests, put_pod_of

NAME = "paddle-cluster-job"


def put(cluster: FakeCluster, owner: str, number: int, address: str = "", **state: Any) -> str:
    """Add a pod with the labels that Kubernetes sets. With an address, it has no index."""
    name = put_pod_of(cluster, owner, number, indexed=not address, **state)
    pod = cluster.objects["pods", name]
    pod["metadata"]["labels"] |= {"job-name": owner, "app": owner}
    pod["status"]["podIP"] = address
    return name


def test_members_of_a_plain_job_have_the_order_of_their_addresses(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    put(cluster, NAME, 0, "10.0.0.10", **running())
    put(cluster, NAME, 1, "10.0.0.9", **running())
    state = read_state(connect(), NAME)
    assert [(member.name, member.pod, member.phase) for member in state.members] == [
        ("rank 0", f"{NAME}-1", "running"),
        ("rank 1", f"{NAME}-0", "running"),
        ("rank 2", "", "waiting"),
    ]
    assert not state.submitted
    assert "rank 1" in command("status", NAME).stdout


def test_the_log_of_a_member_of_a_plain_job_is_read(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job-indexed/job.yaml")
    name = put(cluster, "paddle-indexed-job", 2, **running())
    cluster.logs[name] = ["one", "two"]
    assert list(read_log(connect(), "paddle-indexed-job", 2, role="trainer", follow=False)) == ["one", "two"]


def test_a_plain_job_that_failed_has_its_first_cause(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    put(cluster, NAME, 0, "10.0.0.10", **ended(69, "exit code 69: ended because of a peer"))
    put(cluster, NAME, 1, "10.0.0.9", **ended(3, "exit code 3: rank 0 (x): ended with 3"))
    cluster.end(NAME, "Failed", reason="BackoffLimitExceeded", message="too often")
    state = read_state(connect(), NAME)
    assert (state.phase, state.exit_code, state.cause) == ("failed", 3, "rank 0 (x): ended with 3")
    assert [member.phase for member in state.members] == ["failed", "failed", "gone"]


def test_two_roles_of_plain_jobs_are_one_job(cluster: FakeCluster) -> None:
    put_manifests(cluster, "ps-and-workers/jobs.yaml")
    put(cluster, "paddle-ps", 1, **running())
    names = [member.name for member in read_state(connect(), "paddle-ps").members]
    assert names == ["trainer 0", "trainer 1", "trainer 2", "pserver 0", "pserver 1"]


def test_three_roles_of_plain_jobs_are_one_job_and_each_role_has_logs(cluster: FakeCluster) -> None:
    put_manifests(cluster, "heter/jobs.yaml")
    state = read_state(connect(), "paddle-heter-worker")
    assert [member.name for member in state.members] == [
        *("trainer 0", "trainer 1", "pserver 0", "heter worker 0", "heter worker 1")
    ]
    assert [member.trains for member in state.members] == [True, True, False, False, False]
    name = put(cluster, "paddle-heter-worker", 1, **running())
    cluster.logs[name] = ["a cost"]
    assert list(read_log(connect(), "paddle-heter-trainer", 1, role="heter", follow=False)) == ["a cost"]
    with pytest.raises(Failure, match="has 2 heter workers: expected a rank from 0 to 1"):
        list(read_log(connect(), "paddle-heter-trainer", 2, role="heter", follow=False))


def test_a_statefulset_is_a_job(cluster: FakeCluster) -> None:
    put_manifests(cluster, "statefulset/statefulset.yaml")
    labels = cluster.objects["statefulsets", "paddle-set"]["spec"]["selector"]["matchLabels"]
    for number in range(3):
        name = put(cluster, "paddle-set", number, **running())
        cluster.objects["pods", name]["metadata"]["labels"] |= labels
    assert read_state(connect(), "paddle-set").phase == "running"


def test_other_jobs_are_not_found(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    with pytest.raises(Failure, match="other: there is no such job in namespace ns: `paddle-launcher list -A`"):
        read_state(connect(), "other")
