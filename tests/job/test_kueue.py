"""Jobs in a queue of Kueue: what Kueue reads from them, and what commands say while it holds them back."""

from __future__ import annotations

import time

import pytest
import yaml

from launcher.errors import Failure
from launcher.job import PaddleJob, kueue, logs, watch
from launcher.job.access import connect
from launcher.job.logs import read_log
from launcher.job.lookup import read_state
from launcher.job.scale import scale
from tests.support.fake_cluster import FakeCluster
from tests.support.rendering import Json, jobs, render_text
from tests.support.submitted import command, in_background

QUEUED = {"kueue.x-k8s.io/queue-name": "gpus"}


def paddle_job(trainers: int = 3, pservers: int = 0, elastic: tuple[int, int] | None = (2, 5)) -> PaddleJob:
    return PaddleJob(
        job_name="words",
        entry_point="python train.py",
        runtime_image="an/image:1",
        trainers=trainers,
        pservers=pservers,
        elastic=elastic,
        labels=QUEUED,
    )


def annotations_of(job: PaddleJob) -> dict[str, Json | None]:
    rendered = jobs(list(yaml.safe_load_all(job.to_yaml())))
    return {name: made["metadata"].get("annotations") for name, made in rendered.items()}


def has_kueue(cluster: FakeCluster) -> None:
    cluster.paths[kueue.API] = {"kind": "APIGroup"}


def test_kueue_may_start_an_elastic_job_with_fewer_trainers() -> None:
    assert annotations_of(paddle_job(pservers=2)) == {
        "words-pserver": None,
        "words-trainer": {
            "kueue.x-k8s.io/job-min-parallelism": "2",
            "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
        },
    }


@pytest.mark.parametrize("job", [paddle_job(elastic=None), paddle_job(trainers=2)], ids=["fixed", "the fewest"])
def test_kueue_may_not_start_fewer_pods_than_the_job_needs(job: PaddleJob) -> None:
    """Kueue refuses a Job whose minimum is not below its parallelism."""
    assert annotations_of(job) == {"words-trainer": None}


def test_annotations_of_the_user_replace_those_for_kueue() -> None:
    text = """
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: words
  labels: {kueue.x-k8s.io/queue-name: gpus}
  annotations: {kueue.x-k8s.io/job-min-parallelism: "3"}
spec:
  elastic: 1
  worker:
    {replicas: 4, requests: 2, template: {spec: {containers: [{name: a, image: "i:1", command: [python, t.py]}]}}}
"""
    (job,) = jobs(render_text(text)).values()
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] == "3"


def test_kueue_and_not_submit_starts_a_job_in_a_queue(cluster: FakeCluster) -> None:
    has_kueue(cluster)
    paddle_job(pservers=1).submit()
    assert {cluster.objects["jobs", name]["spec"]["suspend"] for name in cluster.names("jobs")} == {True}
    assert cluster.names("secrets"), "all other objects exist"


def test_without_kueue_in_the_cluster_the_job_starts_at_once(cluster: FakeCluster) -> None:
    paddle_job().submit()
    assert cluster.objects["jobs", "words-trainer"]["spec"]["suspend"] is False


def test_no_command_advises_to_delete_a_job_that_kueue_holds_back(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has_kueue(cluster)
    for module in (watch, logs):
        monkeypatch.setattr(module, "SUBMIT_SECONDS", 0.1)
    job = paddle_job()
    job.submit()
    reading = in_background(lambda: len(list(read_log(connect(), "words", 0, role="trainer", follow=True))))
    with pytest.raises(Failure, match=r"has not ended after 3 s: rank 0 waiting in queue gpus of Kueue; .*continues"):
        job.wait(3)
    assert not reading.done()
    assert "rank 0 of words has no log yet: in queue gpus of Kueue" in capsys.readouterr().err
    shown = command("status", "words").stdout
    assert shown.startswith("words: suspended\n")
    assert "in queue gpus of Kueue" in shown
    assert read_state(connect(), "words").queue == "gpus"
    cluster.end("words-trainer", "Failed", reason="r", message="exit code 3")  # ends the thread
    with pytest.raises(Failure):
        reading.result(20)


def test_a_job_that_is_suspended_for_another_reason_was_half_submitted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SUBMIT_SECONDS", 0.1)
    job = paddle_job()
    job.submit()
    made = cluster.objects["jobs", "words-trainer"]
    made["spec"]["suspend"] = True
    made["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name")
    began = time.monotonic()
    with pytest.raises(Failure, match="only a part of the job was submitted: delete the job"):
        job.wait(60)
    assert time.monotonic() - began < 30


def test_a_job_that_kueue_started_with_fewer_pods_has_so_many_members(cluster: FakeCluster) -> None:
    has_kueue(cluster)
    paddle_job(trainers=4).submit()
    cluster.objects["jobs", "words-trainer"]["spec"] |= {"suspend": False, "parallelism": 2, "completions": 2}
    assert len(read_state(connect(), "words").members) == 2


def test_a_change_of_size_in_a_queue_says_that_kueue_decides(cluster: FakeCluster) -> None:
    paddle_job().submit()
    said = scale(connect(), "words", 5)
    assert said.endswith(
        "The job is in a queue of Kueue, which may stop all pods first, and start them when the queue has room"
    )
