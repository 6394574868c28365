"""The size of an elastic job changes within its range, and by nothing else than its own object."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.job.access import connect
from launcher.job.scale import scale
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.submitted import command
from tests.support.workloads import put_manifests

SET, JOB = "paddle-set", "paddle-indexed-job"


def put_elastic(cluster: FakeCluster, path: str, sizes: str = "2:5", **variables: str | None) -> Json:
    """Add the job of a manifest with this range, and return its object."""
    (name,) = put_manifests(cluster, path)
    made = cluster.objects["statefulsets" if "statefulset" in path else "jobs", name]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    values = {"CONF_PADDLE_GRADIENT_NUM": sizes, **variables}
    kept = [entry for entry in container["env"] if entry["name"] not in values]
    container["env"] = kept + [{"name": key, "value": value} for key, value in values.items() if value is not None]
    return made


@pytest.fixture
def indexed(cluster: FakeCluster) -> Json:
    return put_elastic(cluster, "job-indexed/job.yaml")


def sizes_of(job: Json) -> tuple[Any, Any]:
    return job["spec"]["parallelism"], job["spec"]["completions"]


def test_an_indexed_job_grows_by_parallelism_and_completions_at_once(cluster: FakeCluster, indexed: Json) -> None:
    said = command("scale", JOB, "5").stdout
    assert said == f"{JOB}: 3 -> 5 pods: 2 pods more: they join when the running pass is saved\n"
    assert sizes_of(indexed) == (5, 5)
    assert [verb for verb, _ in cluster.asked].count("PATCH") == 1


def test_a_stateful_set_shrinks_by_its_replicas(cluster: FakeCluster) -> None:
    made = put_elastic(cluster, "statefulset/statefulset.yaml")
    said = scale(connect(), SET, 2)
    assert said == f"{SET}: 3 -> 2 pods: 1 pod fewer: the others continue without it, from the last saved pass"
    assert made["spec"]["replicas"] == 2


def test_nothing_is_changed_if_the_job_has_this_size_already(cluster: FakeCluster, indexed: Json) -> None:
    assert scale(connect(), JOB, 3) == f"{JOB}: has 3 pods already"
    assert "PATCH" not in [verb for verb, _ in cluster.asked]


def test_without_a_volume_new_pods_join_at_once(cluster: FakeCluster) -> None:
    put_elastic(cluster, "job-indexed/job.yaml", JOB_PATH=None)
    assert "1 pod more: it joins at once, and training begins again, since JOB_PATH is unset" in scale(
        connect(), JOB, 4
    )


def test_pods_of_a_suspended_job_start_later(cluster: FakeCluster, indexed: Json) -> None:
    indexed["spec"]["suspend"] = True
    assert scale(connect(), JOB, 4).endswith("they start when the job is no longer suspended")
    assert sizes_of(indexed) == (4, 4)


@pytest.mark.parametrize("count", [1, 6])
def test_a_size_outside_of_the_range_is_refused_with_the_range(cluster: FakeCluster, indexed: Json, count: int) -> None:
    message = command("scale", JOB, str(count), code=Exit.USAGE).stderr
    assert f"{JOB}: {count}: expected 2 to 5 pods, the range of CONF_PADDLE_GRADIENT_NUM: to train with" in message
    assert sizes_of(indexed) == (3, 3)


def test_a_job_of_fixed_size_is_refused_and_the_message_says_how_it_could_be_elastic(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job-indexed/job.yaml")
    message = command("scale", JOB, "4", code=Exit.CONFIG).stderr
    assert "it is not elastic: CONF_PADDLE_GRADIENT_NUM is 3: delete it, and submit it with a range, such as 3:5" in (
        message
    )


def test_a_job_whose_size_kubernetes_cannot_change_is_refused(cluster: FakeCluster) -> None:
    put_elastic(cluster, "job/job.yaml")
    with pytest.raises(Failure, match=r"Kubernetes changes the size of Indexed Jobs only.*completionMode: Indexed"):
        scale(connect(), "paddle-cluster-job", 4)


@pytest.mark.parametrize(("condition", "end"), [("Complete", "complete"), ("Failed", "failed")])
def test_a_job_that_has_ended_is_refused(cluster: FakeCluster, indexed: Json, condition: str, end: str) -> None:
    cluster.end(JOB, condition)
    with pytest.raises(Failure, match=f"its size cannot change: the job is {end}: submit it again") as caught:
        scale(connect(), JOB, 4)
    assert caught.value.code == Exit.CONFIG


def test_an_unknown_job_is_refused_with_the_name_that_is_most_similar(cluster: FakeCluster, indexed: Json) -> None:
    message = command("scale", "paddle-index-job", "4", code=Exit.NO_INPUT).stderr
    assert "there is no such job in namespace ns: did you mean paddle-indexed-job? `paddle-launcher list -A`" in message


def test_with_servers_in_pods_of_their_own_only_the_trainers_change(cluster: FakeCluster) -> None:
    put_manifests(cluster, "ps-and-workers/jobs.yaml")
    for name in ("paddle-ps", "paddle-worker"):
        (container,) = cluster.objects["jobs", name]["spec"]["template"]["spec"]["containers"]
        next(entry for entry in container["env"] if entry["name"] == "CONF_PADDLE_GRADIENT_NUM")["value"] = "2:4"
    before = sizes_of(cluster.objects["jobs", "paddle-ps"])
    assert scale(connect(), "paddle-worker", 4).startswith("paddle-worker: 3 -> 4 pods")
    assert sizes_of(cluster.objects["jobs", "paddle-worker"]) == (4, 4)
    assert sizes_of(cluster.objects["jobs", "paddle-ps"]) == before


def test_a_job_of_several_objects_that_train_is_refused_with_their_names(cluster: FakeCluster) -> None:
    for folder in ("job-indexed/job.yaml", "statefulset/statefulset.yaml"):
        made = put_elastic(cluster, folder)
        made["metadata"]["labels"] = {"paddle-launcher/job": "both"}
    with pytest.raises(
        Failure, match="both: its size cannot change: it has several objects: Job paddle-indexed-job, StatefulSet"
    ):
        scale(connect(), "both", 4)


def test_a_range_that_a_config_map_sets_is_not_guessed(cluster: FakeCluster, indexed: Json) -> None:
    (container,) = indexed["spec"]["template"]["spec"]["containers"]
    entry = next(entry for entry in container["env"] if entry["name"] == "CONF_PADDLE_GRADIENT_NUM")
    entry |= {"value": None, "valueFrom": {"configMapKeyRef": {"name": "sizes", "key": "nodes"}}}
    with pytest.raises(Failure, match=r"its range is not known.*ConfigMap"):
        scale(connect(), JOB, 4)


@pytest.mark.parametrize("count", ["0", "-1", "many", "1e3", "9999999999"])
def test_a_number_that_is_none_is_a_mistake_of_the_command_line(cluster: FakeCluster, count: str) -> None:
    message = command("scale", "--", JOB, count, code=Exit.USAGE).stderr
    assert "expected a number of pods, 1 or more" in message
