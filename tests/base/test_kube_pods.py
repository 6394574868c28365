"""The contents of a pod object: its number, its state, and why it does not run."""

from __future__ import annotations

import pytest

from launcher.base import kube_pods
from launcher.base.kube_pods import ENDED, LIVE
from tests.support.pods import Json, ended, leaving, member_of_set, pod, waiting


def test_the_main_container_counts_and_not_a_sidecar() -> None:
    sidecar_ended = pod("x-d", "10.0.0.1")
    sidecar_ended["status"]["containerStatuses"].append({"name": "side", "state": {"terminated": {"exitCode": 1}}})
    assert kube_pods.read_pod(sidecar_ended, None).state == LIVE
    injected_first = ended(pod("x-d", "10.0.0.1"), 1)
    injected_first["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "side"}
    assert kube_pods.read_pod(injected_first, None).state == LIVE


def test_a_container_that_has_restarted_still_counts() -> None:
    failed, finished = ended(member_of_set("x-0", "10.0.0.1"), 1), ended(pod("x-d", "10.0.0.1"), 1)
    finished["spec"]["restartPolicy"] = "OnFailure"
    assert kube_pods.read_pod(failed, None).state == LIVE
    assert kube_pods.read_pod(finished, None).state == LIVE
    assert kube_pods.read_pod(ended(finished, 0), None).state == ENDED


@pytest.mark.parametrize("label", ["apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name", "both"])
def test_an_ordinal_is_read_from_the_label_or_from_the_name_under_its_owner(label: str) -> None:
    made = member_of_set("x-10", "10.0.0.1")
    for each in ("apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"):
        if label in (each, "both"):
            del made["metadata"]["labels"][each]
    assert kube_pods.pod_number(made) == 10


def test_digits_at_the_end_of_a_plain_jobs_pod_name_are_no_number() -> None:
    assert kube_pods.pod_number(pod("x-24567", "10.0.0.1")) is None


def test_the_index_may_be_an_annotation_alone() -> None:
    made = pod("x-1-abcde", "10.0.0.1")
    made["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "1"}
    assert kube_pods.pod_number(made) == 1


@pytest.mark.parametrize(
    ("held_up", "said"),
    [
        (
            waiting(pod("x-b"), "ErrImagePull", "no such image"),
            "Pending: container trainer: ErrImagePull: no such image",
        ),
        (
            waiting(pod("x-b"), "CreateContainerConfigError", 'secret "s" not found'),
            'ConfigError: secret "s" not found',
        ),
        (
            waiting(pod("x-b"), "ImagePullBackOff", "Back-off", "initContainerStatuses", "setup"),
            "Pending: init container setup: ImagePullBackOff: Back-off",
        ),
        (
            waiting(pod("x-b", "10.0.0.2"), "CrashLoopBackOff", "back-off 10s"),
            "waiting: container trainer: CrashLoopBackOff",
        ),
    ],
)
def test_the_reason_of_a_pod_that_does_not_run_is_described(held_up: Json, said: str) -> None:
    assert said in kube_pods.read_pod(held_up, None).reason


def test_a_running_init_container_is_what_a_pod_waits_for() -> None:
    made = waiting(pod("x-b"), "PodInitializing")
    made["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"running": {}}}]
    assert kube_pods.read_pod(made, None).reason == "Pending: init container fetch: runs"


def test_the_end_of_a_pod_is_described() -> None:
    preempted = pod("x-b", "10.0.0.2")
    preempted["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "made room"}
    ]
    assert kube_pods.describe_end(leaving(preempted)) == "PreemptionByScheduler: made room; it is being deleted"
    again = member_of_set("x-1", "10.0.0.2")
    again["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert kube_pods.describe_end(again) == "its container was restarted; before the restart: OOMKilled, exit code 137"
    silent = pod("x-b", "10.0.0.2")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert kube_pods.describe_silent_node(silent) == "its node node-1 does not answer"
    assert kube_pods.describe_silent_node(pod("x-b", "10.0.0.2")) == ""
