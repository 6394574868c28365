"""The state of a job, from its objects in the cluster."""

from __future__ import annotations

import pytest

from launcher.job import Failure
from launcher.job.state import FAILED, GONE, RETRIES, RUNNING, SUSPENDED, WAITING, JobState
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.submitted import JOB, MEMBERS, ended, put_pod, running, submit_and_run


def phases(state: JobState) -> list[tuple[str, str]]:
    return [(member.name, member.phase) for member in state.members]


def test_the_state_lists_all_members_trainers_first(cluster: FakeCluster) -> None:
    JOB.submit()
    put_pod(cluster, "trainer", 1, **running())
    put_pod(cluster, "pserver", 0, waiting={"reason": "ImagePullBackOff", "message": "no such image"})
    state = JOB.status()
    assert phases(state) == [("trainer 0", WAITING), ("trainer 1", RUNNING), ("pserver 0", WAITING)]
    assert state.phase == WAITING
    assert state.members[0].what == "has no pod"
    assert "no such image" in state.members[2].what


def test_a_job_that_was_submitted_in_part_is_suspended(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    cluster.objects["jobs", "words-pserver"]["spec"]["suspend"] = True
    assert JOB.status().phase == SUSPENDED


def test_the_newest_pod_of_a_rank_counts(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    put_pod(cluster, "trainer", 1, **ended(137, "exit code 137: rank 1: killed"))
    put_pod(cluster, "trainer", 1, suffix="b", **running())
    assert phases(JOB.status())[1] == ("trainer 1", RUNNING)


LOST = ended(76, "exit code 76: trainer 1 (x) was lost", 3)
STOPPED = ended(143, "exit code 143: got SIGTERM", 1)
CONSEQUENCE = ended(69, "exit code 69: ended because of a peer: trainer 1 (x): ended with 3", 2)
CAUSE = ended(3, "exit code 3: trainer 1 (x): ended with 3", 3)
CONDITION = "Container paddle for pod ns/x failed with exit code 66 matching FailJob rule"


@pytest.mark.parametrize(
    ("ends", "code", "cause"),
    [
        ([CONSEQUENCE, CAUSE], 3, "trainer 1 (x): ended with 3"),
        ([LOST, CAUSE], 3, "trainer 1 (x): ended with 3"),
        ([STOPPED, CONSEQUENCE], 66, "ended because of a peer: trainer 1 (x): ended with 3"),
        ([], 66, f"PodFailurePolicy: {CONDITION}"),
    ],
    ids=["its pod is there", "its pod and one that lost it", "only a consequence is there", "no pod is there"],
)
def test_the_exit_code_of_a_failed_job_is_that_of_the_first_cause(
    cluster: FakeCluster, ends: list[Json], code: int, cause: str
) -> None:
    JOB.submit()
    for rank, end in enumerate(ends):
        put_pod(cluster, "trainer", rank, **end)
    cluster.end("words-trainer", "Failed", reason="PodFailurePolicy", message=CONDITION)
    state = JOB.status()
    assert (state.phase, state.exit_code, state.cause) == (FAILED, code, cause)


def test_a_member_of_a_failed_job_whose_pod_was_deleted_is_gone(cluster: FakeCluster) -> None:
    JOB.submit()
    put_pod(cluster, "trainer", 1, **CAUSE)
    cluster.end("words-trainer", "Failed", reason="BackoffLimitExceeded", message="too often")
    members = JOB.status().members
    assert [member.phase for member in members] == [GONE, FAILED, GONE]
    assert members[0].what == "Kubernetes has deleted its pod"


def test_a_job_whose_members_have_all_failed_retries_until_kubernetes_gives_up(cluster: FakeCluster) -> None:
    JOB.submit()
    for role, rank in MEMBERS:
        put_pod(cluster, role, rank, **CAUSE)
    assert JOB.status().phase == RETRIES


def test_a_job_that_does_not_exist_has_no_state(cluster: FakeCluster) -> None:
    with pytest.raises(Failure, match="words: there is no such job in namespace ns"):
        JOB.status()
