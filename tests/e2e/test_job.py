"""The launcher as process 1 of real pods: the plain Job of the 2016 documents on a shared volume, with the stand-in."""

from __future__ import annotations

import json

import psutil
import pytest

from tests.e2e.cluster import SIZE, kubectl, until
from tests.e2e.training import Training


def test_the_job_of_the_2016_documents_trains_and_completes(training: Training) -> None:
    training.submit("--num_passes=2")
    members = training.until_ended()
    assert [member["exit_code"] for member in members] == [0, 0, 0], training.logs()
    training.until_complete()
    assert training.passes_done() == 2


def test_every_pod_names_a_killed_trainer_and_the_job_fails(training: Training) -> None:
    members = training.submit(hold_before=1).until_training()
    kill = ["pkill", "-9", "-f", "standin.paddle_trainer"]
    kubectl("-n", training.cluster.namespace, "exec", members[1]["pod"], "--", *kill)
    ended = training.until_ended()
    assert [member["exit_code"] for member in ended] == [69, 137, 69]
    assert {member["first_cause"]["pod"] for member in ended} == {members[1]["pod"]}
    assert training.until_failed() == "BackoffLimitExceeded"


def test_a_missing_shard_fails_the_job_before_any_trainer_starts(training: Training) -> None:
    (training.volume / training.name / "1").rename(training.volume / training.name / "one")
    ended = training.submit("--num_passes=2").until_ended()
    assert sorted(member["exit_code"] for member in ended) == [66, 69, 69]
    assert "one" in ended[0]["first_cause"]["what"]  # the folders that exist instead
    assert not list(training.output.glob("pass-*"))
    assert training.until_failed() == "BackoffLimitExceeded"


def test_the_job_waits_for_a_late_pod_and_says_so(training: Training) -> None:
    namespace = ("-n", training.cluster.namespace)
    training.submit("--num_passes=2", change=lambda job: job["spec"].update(parallelism=SIZE - 1))
    until(lambda: "2 of 3" in training.logs(), training.logs)
    kubectl(*namespace, "patch", "job", training.name, "-p", json.dumps({"spec": {"parallelism": SIZE}}))
    assert [member["exit_code"] for member in training.until_ended()] == [0, 0, 0], training.logs()


def test_after_the_deletion_of_the_job_all_pods_end_before_the_grace_period(training: Training) -> None:
    training.submit(hold_before=1).until_training()
    kubectl("-n", training.cluster.namespace, "delete", "job", training.name, "--cascade=foreground", "--wait=false")
    until(lambda: not training.pods())
    assert {member["exit_code"] for member in training.until_ended()} <= {143, 69}
    assert {member["phase"] for member in training.status()} <= {"stopped", "failed"}


@pytest.mark.alone  # the launcher asks Kubernetes for 3 s at most
def test_a_lost_launcher_is_named_with_the_state_of_its_pod(training: Training) -> None:
    members = training.submit(hold_before=1).until_training()
    lost = members[2]["pod"]
    for process in psutil.process_iter():  # on the node, since no process in a pod can kill process 1
        if _is_launcher_of(process, lost):
            process.kill()
    until(lambda: training.status()[0].get("exit_code") is not None, training.logs)
    cause = training.status()[0]["first_cause"]
    assert (cause["kind"], cause["pod"]) == ("lost", lost)
    assert "Kubernetes says: Error, exit code 137" in cause["what"]


def _is_launcher_of(process: psutil.Process, pod: str) -> bool:
    try:
        return "paddle-launcher" in " ".join(process.cmdline()) and process.environ().get("HOSTNAME") == pod
    except psutil.Error:
        return False
