"""The scheduler removes a pod for a pod of higher priority. The other members wait until the pod fits again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from launcher.store.status import describe
from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.e2e.pods import kill
from tests.e2e.seats import Seat
from tests.e2e.training import PASSES, Change, Training, ignore_consequences

PREEMPTOR = "more-important"
REASON = "Kubernetes says: PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod"


@pytest.fixture
def priority(cluster: Cluster) -> Iterator[str]:
    """Yield a priority class above the default. It belongs to the whole cluster, so its name contains the namespace."""
    made: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    kubectl("create", "-f", "-", given=made | {"metadata": {"name": cluster.namespace}})
    yield cluster.namespace
    kubectl("delete", "priorityclass", cluster.namespace)


def preempt(cluster: Cluster, pod: str, seat: Seat, priority: str) -> None:
    """Start a pod of higher priority that fits only in the place of this pod. Wait until it has this place."""
    sleep = {"name": "sleep", "image": cluster.image, "command": ["sleep", "600"], "resources": seat.taken()}
    spec = {
        "priorityClassName": priority,
        "nodeSelector": {"kubernetes.io/hostname": cluster.pod(pod)["spec"]["nodeName"]},
        "terminationGracePeriodSeconds": 1,
        "containers": [sleep],
    }
    cluster.create(cluster.bare(PREEMPTOR, {"metadata": {}, "spec": spec}))
    until(lambda: cluster.pod(PREEMPTOR)["status"]["phase"] == "Running")


@pytest.mark.alone  # the launcher asks Kubernetes for 3 s at most
@pytest.mark.parametrize("gone", [0, 1], ids=["the hub", "another member"])
def test_a_preempted_pod_is_named_as_such_and_the_job_waits_until_it_fits_again(
    training: Training, seat: Seat, priority: str, kept: Change, gone: int
) -> None:
    def takes_a_seat(job: Json) -> None:
        ignore_consequences(job)
        kept(job)
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = seat.taken()

    flags = f"--num_passes={PASSES}"
    training.submit(flags, mode="Indexed", change=takes_a_seat, hold_before=2, LAUNCHER_MAX_RESTARTS="1")
    before = training.until_saved(1)
    preempted = before[gone]["pod"]
    others = [rank for rank in range(SIZE) if rank != gone]
    preempt(training.cluster, preempted, seat, priority)

    waits = ("is Pending: Unschedulable: 0/", f"Insufficient {seat.name}")
    pods = [before[rank]["pod"] for rank in others]
    until(lambda: all(part in training.cluster.log(pod) for pod in pods for part in waits), training.logs)
    while_waiting = training.status()
    assert while_waiting[gone]["exit_code"] == 143
    assert while_waiting[gone]["first_cause"]["what"] == "got SIGTERM"
    assert {while_waiting[rank]["phase"] for rank in others} == {"gathering"}
    kubectl("-n", training.cluster.namespace, "delete", "pod", PREEMPTOR, "--wait=false")

    # The preemption has not used the only restart of the job. A trainer can still use it.
    until(lambda: [member.get("generation") for member in training.status()] == [1] * SIZE, training.logs)
    kill(training.cluster, before[2]["pod"], "-9", "-f", "standin.paddle_trainer")
    training.let_go()
    training.until_complete_after("stopped", "trainer")
    after = training.status()
    assert [after[rank]["uid"] for rank in others] == [before[rank]["uid"] for rank in others]
    assert after[gone]["uid"] != before[gone]["uid"]
    what = f"rank {gone} ({preempted}): got SIGTERM"
    assert f"{what}; {REASON}" in training.told(others[0]), "it has asked for all"
    timeline = training.output / (f"node_{others[0]}/events.jsonl" if gone == 0 else "events.jsonl")
    (event,) = [each for each in map(json.loads, timeline.read_text().splitlines()) if each["event"] == "pod_ended"]
    assert event["peer"]["pod"] == preempted
    assert REASON.removeprefix("Kubernetes says: ") in event["why"]
    assert f"{what}; {REASON}" in describe(str(training.volume / training.name), as_json=False)
