"""Real pods whose trainer dies, or one of which is deleted: the job goes on in those that are left."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import SIZE, Json, until
from tests.e2e.pods import delete_pod, end_of, evict, kill, name_of, uids
from tests.e2e.training import Training

PASSES = 5


def submit(training: Training, mode: str) -> None:
    def replaced(job: Json) -> None:
        job["spec"]["backoffLimit"] = SIZE

    passes = f"--num_passes={PASSES}"
    training.submit(passes, mode=mode, change=replaced, LAUNCHER_MAX_RESTARTS="3", STANDIN_BATCH_SECONDS="0.15")


def until_saved(training: Training, number: int) -> list[Json]:
    until(lambda: (training.output / f"pass-{number:05d}" / "done").exists(), training.logs)
    return training.status()


def went_on(training: Training, *kinds: str) -> None:
    """It is complete, with all its passes, after generations that ended by these kinds of causes."""
    training.until_complete()
    assert training.exits() == [0] * SIZE
    assert training.passes_done() == PASSES
    *ended, last = training.job_file()["generations"]
    assert [one["first_cause"]["kind"] for one in ended] == list(kinds)
    assert last["after_pass"] >= 1


def test_a_trainer_that_is_killed_costs_no_pod(training: Training) -> None:
    submit(training, "NonIndexed")
    before = until_saved(training, 1)
    pods = uids(training.pods())
    kill(training.cluster, before[1]["pod"], "-9", "-f", "standin.paddle_trainer")
    went_on(training, "trainer")
    assert uids(training.pods()) == pods
    assert not any(pod["status"]["containerStatuses"][0]["restartCount"] for pod in training.pods())


@pytest.mark.parametrize("gone", [0, 1], ids=["the hub", "another one"])
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_a_pod_that_is_deleted_is_replaced_and_the_others_stay(training: Training, mode: str, gone: int) -> None:
    submit(training, mode)
    before = until_saved(training, 1)
    delete_pod(training, before[gone]["pod"])
    went_on(training, "stopped")
    after = training.status()
    others = [rank for rank in range(SIZE) if rank != gone]
    assert [after[rank]["uid"] for rank in others] == [before[rank]["uid"] for rank in others], "they kept their ranks"
    assert after[gone]["uid"] != before[gone]["uid"]
    assert all(end_of(pod)["exitCode"] == 0 for pod in training.pods()), [name_of(pod) for pod in training.pods()]


def test_an_evicted_pod_is_named_as_evicted_and_replaced(training: Training) -> None:
    submit(training, "Indexed")
    before = until_saved(training, 1)
    evict(training, before[1]["pod"])
    went_on(training, "stopped")
    cause = training.job_file()["generations"][0]["first_cause"]
    assert cause["rank"] == 1
    assert "was told to stop (SIGTERM); Kubernetes says: EvictionByEvictionAPI" in cause["what"]
