"""Faults of processes, pods and volumes in real pods: what the job does, and what the user sees."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import Json
from tests.e2e.pods import delete_pod
from tests.e2e.training import Training, ignore_consequences


def kill_is_named(training: Training, *words: str) -> None:
    """Check that the Job has failed, and that all remaining pods and the volume name the kill in the same words."""
    assert training.until_failed() == "BackoffLimitExceeded"
    assert training.job_file()["exit_code"] == 137
    assert not list(training.output.glob(".launcher/*/complete"))
    codes = {member["pod"]: member["exit_code"] for member in training.status()}
    ends = training.ends()
    assert ends
    for pod, end in ends.items():
        assert end["exitCode"] == codes[pod]
        for told in (end["message"], training.cluster.log(pod)):
            assert all(word in told for word in words), (words, told)
    causes = [training.job_file()["first_cause"], *(member["first_cause"] for member in training.status())]
    for cause in causes:
        assert all(word in f"rank {cause['rank']} ({cause['pod']}): {cause['what']}" for word in words), (words, cause)


@pytest.mark.alone  # the launcher of the pserver must report its death within 0.3 s
def test_a_killed_pserver_is_named_although_the_trainers_die_because_of_it(training: Training) -> None:
    members = training.submit(hold_before=1).until_training()
    training.execute(1, "pkill", "-9", "-f", "standin.paddle_pserver_main")
    assert training.exits() == [69, 137, 69]
    kill_is_named(training, f"rank 1 ({members[1]['pod']}): pserver (", "was killed by SIGKILL (exit code 137)")


def test_a_deleted_pod_fails_a_job_that_may_lose_none(training: Training) -> None:
    members = training.submit(hold_before=1).until_training()
    delete_pod(training, members[1]["pod"])
    codes = training.exits()
    assert codes[1] == 143
    assert set(codes) <= {69, 143}  # Kubernetes stops pods of a failed Job that have not ended yet
    assert {member["first_cause"]["kind"] for member in training.status()} == {"stopped"}
    assert training.until_failed() == "BackoffLimitExceeded"


def test_a_deleted_pod_is_named_and_all_pods_are_replaced_if_this_failure_does_not_count(training: Training) -> None:
    training.submit("--num_passes=3", mode="Indexed", change=ignore_consequences, hold_before=1)
    first = training.until_training()
    delete_pod(training, first[1]["pod"])
    training.until_failed_once()
    training.let_go()
    training.until_complete()
    assert training.passes_done() == 3
    second = training.status()
    pods = [member["pod"] for member in second]
    assert not set(pods) & {member["pod"] for member in first}
    assert [member["exit_code"] for member in second] == [0, 0, 0]
    assert training.job_file()["exit_code"] == 0
    ends = training.ends()
    assert {pod: ends.pop(pod)["exitCode"] for pod in pods} == dict.fromkeys(pods, 0)
    assert ends.keys() == {first[0]["pod"], first[2]["pod"]}
    for pod, end in ends.items():
        assert end["exitCode"] == 69
        for told in (end["message"], training.cluster.log(pod)):
            assert f"ended because of a peer: rank 1 ({first[1]['pod']}): got SIGTERM" in told


@pytest.mark.parametrize("folder", ["", "output"])
def test_a_volume_that_is_read_only_is_named_and_no_trainer_starts(training: Training, folder: str) -> None:
    path = f"/home/jobpath/{training.name}/output"

    def read_only(job: Json) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        if folder:
            container["volumeMounts"].append(mount | {"mountPath": path, "subPath": f"{training.name}/{folder}"})
        container["volumeMounts"][-1]["readOnly"] = True

    training.submit("--num_passes=1", change=read_only)
    assert training.until_failed() == "BackoffLimitExceeded"
    ends = training.ends()
    assert {end["exitCode"] for end in ends.values()} - {143} == {73}  # a failed Job stops its remaining pods
    for pod, end in ends.items():
        if end["exitCode"] == 73:
            for told in (end["message"], training.cluster.log(pod)):
                assert f"cannot write {path}" in told
                assert "Read-only file system: the file system is mounted read-only: make the mount writable" in told
    assert not list(training.output.iterdir())


def test_every_pod_names_a_trainer_that_is_out_of_memory(training: Training) -> None:
    def limit(job: Json) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"memory": "256Mi"}}

    training.submit(change=limit, hold_before=1, STANDIN_TAKES_MEMORY_AT="1:1:512")
    assert training.exits() == [69, 137, 69]
    what = "out of memory: the kernel killed a process of this container; the container's memory limit is 256 MiB"
    kill_is_named(training, f"rank 1 ({training.status()[1]['pod']}): trainer (", f"SIGKILL (exit code 137): {what}")


def with_sidecar_that_ignores_sigterm(job: Json) -> None:
    """Add a native sidecar that ignores SIGTERM, so it ends only at the end of the grace period."""
    pod = job["spec"]["template"]["spec"]
    ignoring = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    image = pod["containers"][0]["image"]
    pod["initContainers"] = [{"name": "sidecar", "image": image, "restartPolicy": "Always", "command": ignoring}]
    pod["terminationGracePeriodSeconds"] = 5


def sidecars_outlived_launchers(training: Training) -> bool:
    """Return whether no launcher in the remaining pods of a failed Job waited for a sidecar."""
    launchers = [member["written"] for member in training.status()]
    states = [state for pod in training.pods() for state in pod["status"]["initContainerStatuses"]]
    sidecars = [state["state"]["terminated"]["finishedAt"] for state in states if "terminated" in state["state"]]
    return bool(max(launchers) < min(sidecars))  # both are UTC times of RFC 3339, which can be compared as text


def test_a_sidecar_that_outlives_the_trainer_delays_no_member(training: Training) -> None:
    training.submit("--num_passes=2", change=with_sidecar_that_ignores_sigterm)
    assert training.exits() == [0, 0, 0], training.logs()
    training.until_complete()
    assert sidecars_outlived_launchers(training)


def test_a_failure_is_reported_while_sidecars_keep_the_pods_running(training: Training) -> None:
    training.submit(change=with_sidecar_that_ignores_sigterm, hold_before=1)
    members = training.until_training()
    training.execute(1, "pkill", "-9", "-f", "standin.paddle_trainer")
    assert training.exits() == [69, 137, 69]
    kill_is_named(training, f"rank 1 ({members[1]['pod']}): trainer (", "was killed by SIGKILL (exit code 137)")
    assert sidecars_outlived_launchers(training)
