"""A trainer dies, or one pod is deleted. The job continues in the remaining pods."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import SIZE, Json
from tests.e2e.pods import delete_pod, end_of, evict, kill, name_of, uids
from tests.e2e.training import PASSES, Change, Training


def submit(training: Training, mode: str, change: Change = lambda job: None) -> None:
    def replaced(job: Json) -> None:
        job["spec"]["backoffLimit"] = SIZE
        change(job)

    training.submit(f"--num_passes={PASSES}", mode=mode, change=replaced, hold_before=2, LAUNCHER_MAX_RESTARTS="3")


def completes_after_one_failure(training: Training, kind: str) -> None:
    """Check that the job is complete after one failure of this kind."""
    training.until_failed_once()
    training.let_go()
    training.until_complete_after(kind)


def test_after_a_killed_trainer_all_pods_stay(training: Training) -> None:
    submit(training, "NonIndexed")
    before = training.until_saved(1)
    pods = uids(training.pods())
    kill(training.cluster, before[1]["pod"], "-9", "-f", "standin.paddle_trainer")
    completes_after_one_failure(training, "trainer")
    assert uids(training.pods()) == pods
    assert not any(pod["status"]["containerStatuses"][0]["restartCount"] for pod in training.pods())


@pytest.mark.parametrize("gone", [0, 1], ids=["the hub", "another member"])
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_a_deleted_pod_is_replaced_and_all_other_pods_stay(training: Training, mode: str, gone: int) -> None:
    submit(training, mode)
    before = training.until_saved(1)
    delete_pod(training, before[gone]["pod"])
    completes_after_one_failure(training, "stopped")
    after = training.status()
    others = [rank for rank in range(SIZE) if rank != gone]
    assert [after[rank]["uid"] for rank in others] == [before[rank]["uid"] for rank in others], "they kept their ranks"
    assert after[gone]["uid"] != before[gone]["uid"]
    assert all(end_of(pod)["exitCode"] == 0 for pod in training.pods()), [name_of(pod) for pod in training.pods()]


@pytest.mark.alone  # the launcher asks Kubernetes for 3 s at most
def test_an_evicted_pod_is_named_as_evicted_and_replaced(training: Training, kept: Change) -> None:
    submit(training, "Indexed", kept)
    before = training.until_saved(1)
    evict(training, before[1]["pod"])
    completes_after_one_failure(training, "stopped")
    cause = training.job_file()["generations"][0]["first_cause"]
    assert cause["rank"] == 1
    assert "got SIGTERM; Kubernetes says: EvictionByEvictionAPI" in cause["what"]
