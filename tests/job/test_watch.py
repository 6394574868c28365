"""Wait for the end of a job, and show its members."""

from __future__ import annotations

import threading

import pytest

from launcher.errors import Exit
from launcher.job import Failure
from tests.support.fake_cluster import FakeCluster
from tests.support.jobs import until
from tests.support.submitted import JOB, JOBS, MEMBERS, ended, in_background, put_pod, submit_and_run


def pods_are_read(cluster: FakeCluster) -> threading.Event:
    """Return an event that is set once the pods have been listed, which only a waiting client does."""
    read = threading.Event()
    cluster.after = lambda verb, plural: read.set() if plural == "pods" else None
    return read


def test_waiting_returns_0_once_all_jobs_are_complete(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    submit_and_run(cluster)
    cluster.logs = {"words-trainer-0-a": ["first", "Pass=3 Batch=7 loss=0.2"]}
    waiting = in_background(JOB.wait)
    until(lambda: "pass 3, loss 0.2000" in capsys.readouterr().err)
    cluster.end("words-trainer", "Complete")
    for role, rank in MEMBERS:
        put_pod(cluster, role, rank, **ended(0, "exit code 0: the job is complete"))
    cluster.end("words-pserver", "Complete")
    assert waiting.result(20) == 0
    shown = capsys.readouterr().err
    assert "trainer 0-1: complete: exit code 0: the job is complete\n" in shown
    assert shown.endswith("words: the job is complete\n")


def test_waiting_returns_the_exit_code_of_a_pod_that_is_deleted_later(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    submit_and_run(cluster)
    waiting = in_background(JOB.wait)
    put_pod(cluster, "trainer", 1, **ended(3, "exit code 3: trainer 1 (words-trainer-1-a): trainer ended with 3"))
    until(lambda: "failed" in capsys.readouterr().err)
    for name in cluster.names("pods"):
        cluster.delete("pods", name)
    for name in JOBS:
        cluster.end(name, "Failed", reason="BackoffLimitExceeded", message="too often")
    assert waiting.result(20) == 3
    assert "words: exit code 3: trainer 1 (words-trainer-1-a): trainer ended with 3" in capsys.readouterr().err


def test_the_end_of_the_first_failures_log_is_printed_once_with_the_command_for_all_of_it(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    submit_and_run(cluster)
    waiting, shown = in_background(JOB.wait), [""]

    def has(text: str) -> bool:
        shown[0] += capsys.readouterr().err
        return text in shown[0]

    until(lambda: has("trainer 0"))
    cause = "trainer 1 (words-trainer-1-a): trainer ended with 3"
    put_pod(cluster, "trainer", 1, **ended(3, f"exit code 3: {cause}\nTraceback:\nValueError: no"))
    for role, rank in (("trainer", 0), ("pserver", 0)):
        put_pod(cluster, role, rank, **ended(69, f"exit code 69: ended because of a peer: {cause}\nValueError: no", 1))
    for name in JOBS:
        cluster.end(name, "Failed", reason="BackoffLimitExceeded", message="too often")
    assert waiting.result(20) == 3
    has("")
    last_lines = "    Traceback:\n    ValueError: no\nthe log: paddle-launcher logs -n ns words 1\n"
    assert shown[0].endswith(f"words: exit code 3: {cause}\n{last_lines}")
    assert shown[0].count(cause) == 2  # at the member, and in the verdict
    assert "failed: 69, because of trainer 1\n" in shown[0]


def test_waiting_ends_after_its_timeout_and_the_job_continues(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    message = r"words has not ended after 0\.1 s: trainer 0 running; .*The job continues"
    with pytest.raises(Failure, match=message) as caught:
        JOB.wait(timeout=0.1, quiet=True)
    assert caught.value.code == Exit.TIMED_OUT


def test_waiting_ends_after_its_timeout_while_the_api_server_does_not_answer(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    cluster.refused["GET", "jobs"] = (503, "restarting")
    with pytest.raises(Failure, match=r"words has not ended after 0\.1 s: the API server .* 503"):
        JOB.wait(timeout=0.1, quiet=True)


def test_a_complete_job_that_kubernetes_removes_is_complete(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    for role, rank in MEMBERS:
        put_pod(cluster, role, rank, **ended(0, "exit code 0: the job is complete"))
    read = pods_are_read(cluster)
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert read.wait(20)
    cluster.objects.clear()
    assert waiting.result(20) == 0


def test_waiting_fails_if_the_job_is_deleted_before_it_ends(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    read = pods_are_read(cluster)
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert read.wait(20)
    cluster.objects.clear()
    with pytest.raises(Failure, match="words was deleted before it ended"):
        waiting.result(20)


def test_waiting_continues_although_a_newly_started_api_server_knows_no_roles(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    read, refused = pods_are_read(cluster), threading.Event()
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert read.wait(20)
    cluster.refused["GET", "jobs"] = (403, 'jobs is forbidden: User "me" cannot list resource "jobs"')
    cluster.after = lambda verb, plural: refused.set()
    assert refused.wait(20)
    for name in JOBS:
        cluster.end(name, "Complete")
    cluster.refused.clear()
    assert waiting.result(20) == 0


def test_waiting_continues_although_the_api_server_does_not_answer_for_a_while(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    for name in JOBS:
        cluster.end(name, "Complete")
    cluster.refused["GET", "jobs"] = (503, "restarting")
    refused = threading.Event()
    cluster.after = lambda verb, plural: refused.set() if plural == "jobs" else None
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert refused.wait(20)
    cluster.refused.clear()
    assert waiting.result(20) == 0
