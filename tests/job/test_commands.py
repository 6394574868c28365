"""render, submit, status, logs and delete on the command line, with a fake cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.jobs import until
from tests.support.submitted import FLAGS, WIDE_AND_DEEP, command, ended, put_pod, running


def test_the_command_line_submits_shows_and_deletes_a_paddle_job(cluster: FakeCluster) -> None:
    done = command("submit", *FLAGS, str(WIDE_AND_DEEP))
    assert done.stdout.startswith("submitted wide-ande-deep to namespace ns: 4 pods\n")
    for rank in range(2):
        for role in ("worker", "ps"):
            name = put_pod(cluster, role, rank, "wide-ande-deep", **running())
            cluster.logs[name] = [f"{role} {rank} says hello"]
    table = command("status", "wide-ande-deep").stdout
    assert table.startswith("wide-ande-deep: running\n")
    assert [line.split()[:2] for line in table.splitlines()[3:]] == [
        ["trainer", "0"],
        ["trainer", "1"],
        ["pserver", "0"],
        ["pserver", "1"],
    ]
    assert '"phase": "running"' in command("status", "wide-ande-deep", "--json", "-n", "ns").stdout
    for words in (("status",), ("status", "-n", "ns")):
        assert command(*words).stdout.splitlines()[1].split()[0] == "wide-ande-deep"
    assert command("logs", "wide-ande-deep", "1").stdout == "worker 1 says hello\n"
    assert command("logs", "wide-ande-deep", "-n", "ns", "--role", "pserver", "0").stdout == "ps 0 says hello\n"
    for name in cluster.names("pods"):
        cluster.objects.pop(("pods", name))
    assert command("delete", "-n", "ns", "wide-ande-deep").stdout == "deleted wide-ande-deep\n"
    assert not cluster.objects


def test_status_says_the_first_cause_once(cluster: FakeCluster) -> None:
    command("submit", *FLAGS, str(WIDE_AND_DEEP))
    cause = "rank 0 (words-0): trainer (`python3 train.py`) ended with exit code 1"
    put_pod(cluster, "worker", 0, "wide-ande-deep", **ended(1, f"exit code 1: {cause}\nKeyError: 'lr'"))
    put_pod(cluster, "worker", 1, "wide-ande-deep", **ended(69, f"exit code 69: ended because of a peer: {cause}", 1))
    put_pod(cluster, "ps", 0, "wide-ande-deep", **ended(143, f"exit code 143: got SIGTERM; first cause: {cause}", 1))
    put_pod(cluster, "ps", 1, "wide-ande-deep", **ended(74, "exit code 74: another reason", 2))
    cluster.end("wide-ande-deep-worker", "Failed")
    cluster.end("wide-ande-deep-ps", "Failed")
    said = command("status", "wide-ande-deep").stdout
    assert said.splitlines()[0] == f"wide-ande-deep: failed, exit code 1: {cause}"
    assert said.count(cause) == 1
    rows = [line.split(maxsplit=6)[-1] for line in said.splitlines()[3:]]
    assert rows == ["as above", "ended because of a peer", "got SIGTERM", "another reason"]


def test_submit_watch_ends_with_the_jobs_exit_code(cluster: FakeCluster) -> None:
    def fail(verb: str, plural: str) -> None:
        if verb == "PATCH":
            put_pod(cluster, "worker", 1, "wide-ande-deep", **ended(3, "exit code 3: trainer 1 (x): ended with 3"))
            for role in ("worker", "ps"):
                cluster.end(f"wide-ande-deep-{role}", "Failed", reason="BackoffLimitExceeded", message="too often")

    cluster.after = fail
    done = command("submit", "--watch", *FLAGS, str(WIDE_AND_DEEP), code=3)
    assert done.stderr.splitlines()[-2:] == [
        "wide-ande-deep: exit code 3: trainer 1 (x): ended with 3",
        "the log: paddle-launcher logs -n ns wide-ande-deep 1",
    ]


@pytest.mark.parametrize("policy", ["OnFailure", "OnCompletion", "Never"])
@pytest.mark.parametrize("code", [0, 3])
def test_submit_watch_deletes_the_job_at_its_end_if_its_policy_says_so(
    cluster: FakeCluster, tmp_path: Path, policy: str, code: int
) -> None:
    is_deleted = policy == ("OnFailure" if code else "OnCompletion")

    def end(verb: str, plural: str) -> None:
        if verb == "PATCH":
            for role, count in (("worker", 2), ("ps", 2)):
                for rank in range(count):
                    put_pod(cluster, role, rank, "wide-ande-deep", **ended(code, f"exit code {code}: it is so"))
                cluster.end(f"wide-ande-deep-{role}", "Failed" if code else "Complete", reason="r", message="m")
        if verb == "DELETE" and plural == "jobs":  # as Kubernetes does
            for name in cluster.names("pods"):
                cluster.delete("pods", name)

    cluster.after = end
    (tmp_path / "job.yaml").write_text(
        WIDE_AND_DEEP.read_text().replace("cleanPodPolicy: Never", f"cleanPodPolicy: {policy}")
    )
    done = command("submit", "--watch", "--strict", *FLAGS, str(tmp_path / "job.yaml"), code=code)
    assert bool(cluster.names("jobs")) != is_deleted
    assert ("deleted, with its pods and logs (cleanPodPolicy)" in done.stderr) == is_deleted


def test_a_job_that_cannot_be_deleted_at_its_end_keeps_its_exit_code(cluster: FakeCluster, tmp_path: Path) -> None:
    def end(verb: str, plural: str) -> None:
        if verb == "PATCH":
            for role in ("worker", "ps"):
                cluster.end(f"wide-ande-deep-{role}", "Complete")

    cluster.after = end
    cluster.refused["DELETE", "jobs"] = (403, "you may not")
    (tmp_path / "job.yaml").write_text(
        WIDE_AND_DEEP.read_text().replace("cleanPodPolicy: Never", "cleanPodPolicy: OnCompletion")
    )
    done = command("submit", "--watch", *FLAGS, str(tmp_path / "job.yaml"))
    assert "submit: wide-ande-deep cannot be deleted (cleanPodPolicy): " in done.stderr
    assert "you may not" in done.stderr


def test_a_job_that_was_submitted_again_is_not_deleted_at_the_end_of_the_first(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Somebody else deletes the job while it is watched, and creates another job of this name, which then ends."""

    def replace(verb: str, plural: str) -> None:
        if verb == "PATCH":
            for each in cluster.objects.values():
                each["metadata"]["uid"] = f"another-{each['metadata']['name']}"
                each["metadata"].pop("ownerReferences", None)
            for role in ("worker", "ps"):
                cluster.end(f"wide-ande-deep-{role}", "Complete")

    cluster.after = replace
    (tmp_path / "job.yaml").write_text(
        WIDE_AND_DEEP.read_text().replace("cleanPodPolicy: Never", "cleanPodPolicy: OnCompletion")
    )
    done = command("submit", "--watch", *FLAGS, str(tmp_path / "job.yaml"))
    assert "submit: wide-ande-deep is not deleted (cleanPodPolicy): this job was deleted already" in done.stderr
    assert sorted(cluster.names("jobs")) == ["wide-ande-deep-ps", "wide-ande-deep-worker"]


def test_a_job_is_deleted_at_its_end_once_the_api_server_answers_again(cluster: FakeCluster, tmp_path: Path) -> None:
    def end(verb: str, plural: str) -> None:
        if verb == "PATCH":
            for role in ("worker", "ps"):
                cluster.end(f"wide-ande-deep-{role}", "Complete")
            cluster.refused["DELETE", "jobs"] = (503, "away for a moment")
        elif verb == "DELETE":
            cluster.refused.pop(("DELETE", "jobs"), None)

    cluster.after = end
    (tmp_path / "job.yaml").write_text(
        WIDE_AND_DEEP.read_text().replace("cleanPodPolicy: Never", "cleanPodPolicy: OnCompletion")
    )
    done = command("submit", "--watch", *FLAGS, str(tmp_path / "job.yaml"))
    assert "deleted, with its pods and logs (cleanPodPolicy)" in done.stderr
    assert cluster.names("jobs") == []


def test_ctrl_c_during_a_submission_deletes_what_was_created(cluster: FakeCluster) -> None:
    """The submission waits until a Service of a deleted job is gone, which never happens here."""
    going = {"labels": {"paddle-launcher/job": "wide-ande-deep"}, "ownerReferences": [{"uid": "gone"}]}
    cluster.put("services", {"metadata": {"name": "wide-ande-deep", "namespace": "ns", **going}, "spec": {}})
    arguments = ["submit", *FLAGS, str(WIDE_AND_DEEP)]
    submitting = subprocess.Popen([sys.executable, "-m", "launcher", *arguments], stderr=subprocess.PIPE, text=True)
    until(lambda: cluster.names("jobs") and cluster.names("secrets"))
    submitting.send_signal(signal.SIGINT)
    _, message = submitting.communicate(timeout=20)
    assert submitting.returncode == 130, message
    assert message == "submit: wide-ande-deep: interrupted: all created objects are deleted\n"
    assert list(cluster.objects) == [("services", "wide-ande-deep")]


def test_a_job_is_not_moved_to_another_namespace(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(WIDE_AND_DEEP.read_text().replace("name: wide", "namespace: a\n  name: wide", 1))
    message = command("submit", "-n", "b", *FLAGS, str(tmp_path / "job.yaml"), code=64).stderr
    assert "--namespace: 'b': the file has namespace 'a': remove this flag, or metadata.namespace" in message
    assert not cluster.objects


def test_status_of_neither_a_folder_nor_a_job_names_the_namespace(cluster: FakeCluster) -> None:
    assert "words: there is no such job in namespace ns" in command("status", "words", code=66).stderr
