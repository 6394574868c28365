"""`paddle-launcher doctor` and the number of pods of an elastic job: range, shards, Volcano, Kueue."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.job import kueue
from tests.support.doctor import doctor, set_variable, workload_of
from tests.support.doctor_world import World
from tests.support.fake_cluster import FakeCluster
from tests.support.workloads import put_manifests

QUEUE = f"{kueue.API}/v1beta1/namespaces/ns/localqueues/team"
MINIMUM = "scheduling.volcano.sh/group-min-member"


@pytest.fixture
def world(cluster: FakeCluster, tmp_path: Path) -> World:
    return World(cluster, tmp_path)


def use(world: World, name: str = "job-indexed", sizes: str = "2:3", **spec: int) -> None:
    """Make the job elastic, and change the fields of its spec. There are shards for three trainers."""
    world.use(name)
    set_variable(world.objects, "CONF_PADDLE_GRADIENT_NUM", sizes)
    workload_of(world.objects)["spec"].update(spec)


def annotate(world: World, **annotations: str) -> None:
    """Put the job into a queue of Kueue, with these annotations: `minimum`, `equal`."""
    names = {"minimum": kueue.MIN_PARALLELISM, "equal": kueue.EQUAL_COMPLETIONS}
    metadata = workload_of(world.objects)["metadata"]
    metadata["labels"] = {kueue.QUEUE: "team"}
    metadata["annotations"] = {names[key]: value for key, value in annotations.items()}
    world.cluster.paths |= {kueue.API: {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta1"}}, QUEUE: {}}


@pytest.mark.parametrize("count", [2, 3])
def test_each_size_in_the_range_is_good(world: World, count: int) -> None:
    use(world, parallelism=count, completions=count)
    found = world.doctor()
    assert {check["state"] for check in found.values()} == {"ok"}, found
    assert found["pods"]["what"] == f"{count} in Job paddle-indexed-job, 2 to 3 may train"
    assert found["data"]["what"].startswith("3 shards for up to 3 trainers")


def test_replicas_of_a_stateful_set_are_a_size_too(world: World) -> None:
    use(world, "statefulset", replicas=2)
    assert world.doctor()["pods"]["what"] == "2 in StatefulSet paddle-set, 2 to 3 may train"


@pytest.mark.parametrize(("count", "nearest"), [(1, 2), (7, 3)])
def test_a_size_outside_of_the_range_is_named_with_the_nearest_one(world: World, count: int, nearest: int) -> None:
    use(world, parallelism=count, completions=count)
    what, mend = world.wrong("pods")
    assert f"has parallelism {count} and completions {count}, but CONF_PADDLE_GRADIENT_NUM allows 2 to 3 pods" in what
    assert f"set parallelism and completions to {nearest}" in mend


def test_a_stateful_set_of_the_cluster_is_mended_by_kubectl_scale(world: World) -> None:
    put_manifests(world.cluster, "statefulset/statefulset.yaml")
    spec = world.cluster.objects["statefulsets", "paddle-set"]["spec"]
    spec["replicas"] = 9
    (container,) = spec["template"]["spec"]["containers"]
    next(each for each in container["env"] if each["name"] == "CONF_PADDLE_GRADIENT_NUM")["value"] = "2:4"
    found = doctor("--no-pod", "paddle-set", code=78)["pods"]
    assert found["mend"] == ["kubectl -n ns scale statefulset/paddle-set --replicas=4"]


def test_the_size_of_a_plain_job_cannot_change(world: World) -> None:
    use(world, "job")
    check = world.doctor()["pods"]
    assert check["state"] == "warning"
    assert (
        check["what"]
        == "the size of Job paddle-cluster-job cannot change: Kubernetes changes that of Indexed Jobs only"
    )
    assert "completionMode: Indexed" in check["mend"][0]


def test_without_a_volume_the_pods_of_an_elastic_job_need_numbers(world: World) -> None:
    use(world, "job")
    set_variable(world.objects, "JOB_PATH", None)
    what, mend = world.wrong("pods")
    assert "the pods of Job paddle-cluster-job have no numbers, and an elastic job without a volume needs them" in what
    assert "completionMode: Indexed" in mend


def test_parallelism_and_completions_must_be_equal(world: World) -> None:
    use(world, parallelism=2, completions=3)
    what, mend = world.wrong("pods")
    assert "has parallelism 2 and completions 3: an elastic Job needs the same number" in what
    assert "to 3" in mend


def test_there_must_be_a_shard_for_each_pod_that_may_come(world: World) -> None:
    use(world, sizes="2:5")
    what, mend = world.wrong("data")
    assert "3 shards for up to 5 trainers: 3, 4 of " in what
    assert "--count 5" in mend


def test_more_shards_than_trainers_are_good_unless_one_between_them_is_missing(world: World) -> None:
    use(world)
    world.shard(3)
    world.shard(4)
    assert world.doctor()["data"]["what"].startswith("5 shards for up to 3 trainers")
    world.shard(6)
    what, mend = world.wrong("data")
    assert "5 of " in what
    assert "--count 7" in mend


@pytest.mark.parametrize(("minimum", "good"), [("1", False), ("2", True), ("3", True), ("4", False)])
def test_volcano_may_start_an_elastic_job_with_the_fewest_pods(world: World, minimum: str, good: bool) -> None:
    use(world)
    workload = workload_of(world.objects)
    workload["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    workload["metadata"]["annotations"] = {MINIMUM: minimum}
    world.cluster.paths |= {"/apis/scheduling.volcano.sh/v1beta1": {}}
    if good:
        assert world.doctor()["queue"]["state"] == "ok"
    else:
        what, mend = world.wrong("queue")
        assert f"{MINIMUM} is {minimum}, but there are 3 pods and 2 are enough" in what
        assert 'set it to "2"' in mend


def test_kueue_may_start_an_elastic_job_with_fewer_pods(world: World) -> None:
    use(world)
    annotate(world, minimum="2", equal="true")
    assert world.doctor()["queue"]["what"] == "Kueue has the LocalQueue team"


@pytest.mark.parametrize(
    ("sizes", "annotations", "says", "mends"),
    [
        ("3", {"minimum": "2", "equal": "true"}, "is 2, but the job needs all 3 pods", "remove this annotation"),
        ("2:3", {"minimum": "1", "equal": "true"}, "is 1, but the job needs 2 of its 3 pods", 'set it to "2"'),
        ("2:3", {"minimum": "3", "equal": "true"}, "is 3, but the job needs 2 of its 3 pods", 'set it to "2"'),
        ("2:3", {"minimum": "2"}, "Kueue would change parallelism only", 'job-completions-equal-parallelism: "true"'),
    ],
)
def test_a_partial_admission_that_the_job_does_not_allow_is_named(
    world: World, sizes: str, annotations: dict[str, str], says: str, mends: str
) -> None:
    use(world, sizes=sizes)
    annotate(world, **annotations)
    what, mend = world.wrong("queue")
    assert says in what
    assert mends in mend
