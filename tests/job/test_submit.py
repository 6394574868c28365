"""Submit a job as a whole, and delete it as a whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from launcher.job import ClaimVolume, Failure, PaddleJob
from tests.support.fake_cluster import FakeCluster
from tests.support.jobs import until
from tests.support.submitted import FLAGS, JOB, JOBS, WIDE_AND_DEEP, command, submit_and_run
from tests.support.workloads import put_manifests


def test_a_job_starts_once_all_of_its_objects_exist(cluster: FakeCluster) -> None:
    secrets_at_start: list[list[str]] = []
    cluster.after = lambda verb, plural: secrets_at_start.append(cluster.names("secrets")) if verb == "PATCH" else None
    JOB.submit()
    assert cluster.created[0] == ("jobs", "words-trainer"), "it reserves the name"
    assert sorted(cluster.names("jobs")) == JOBS
    assert cluster.names("services") == ["words"]
    until(lambda: secrets_at_start == [cluster.names("secrets")] * 2)
    assert len(secrets_at_start[0]) == 1
    assert all(cluster.objects["jobs", name]["spec"]["suspend"] is False for name in JOBS)


def test_all_objects_of_a_job_are_deleted_with_its_first_kubernetes_job(cluster: FakeCluster) -> None:
    JOB.submit()
    cluster.delete("jobs", "words-trainer")
    assert not cluster.objects


def test_jobs_that_kubernetes_removes_when_they_end_do_not_own_each_other(cluster: FakeCluster, tmp_path: Path) -> None:
    """Else the Job that ends first would take the others along, which may still run."""
    text = WIDE_AND_DEEP.read_text().replace("cleanPodPolicy: Never", "cleanPodPolicy: Always")
    (tmp_path / "job.yaml").write_text(text)
    command("submit", *FLAGS, str(tmp_path / "job.yaml"))
    assert len(cluster.names("jobs")) == 2
    for name in cluster.names("jobs"):
        assert not cluster.objects["jobs", name]["metadata"].get("ownerReferences")


@pytest.mark.parametrize("plural", ["secrets", "services"])
def test_a_submission_that_fails_leaves_nothing_behind(cluster: FakeCluster, plural: str) -> None:
    cluster.refused["POST", plural] = (422, f"{plural} are not allowed today")
    with pytest.raises(Failure, match=f"{plural} are not allowed today"):
        JOB.submit()
    assert not cluster.objects


def test_a_job_with_the_same_name_is_not_touched(cluster: FakeCluster) -> None:
    JOB.submit()
    before = dict(cluster.objects)
    with pytest.raises(Failure, match="has a Job words-trainer already: choose another name, or delete"):
        JOB.submit()
    assert cluster.objects == before


@pytest.mark.parametrize("origin", ["submitted", "applied"])
def test_a_job_with_the_same_name_from_yaml_is_not_touched(cluster: FakeCluster, origin: str) -> None:
    """Its Kubernetes Jobs have other names, and objects from `render` have no owner."""
    command("submit", *FLAGS, str(WIDE_AND_DEEP))
    if origin == "applied":
        for each in cluster.objects.values():
            each["metadata"].pop("ownerReferences", None)
    before = dict(cluster.objects)
    job = PaddleJob(job_name="wide-ande-deep", entry_point="python t.py", runtime_image="i:1")
    with pytest.raises(Failure, match=r"has a Job wide-ande-deep-[a-z]+ already"):
        job.submit()
    assert cluster.objects == before


def test_an_object_that_does_not_belong_to_a_job_is_not_replaced(cluster: FakeCluster) -> None:
    cluster.put("services", {"metadata": {"name": "words", "namespace": "ns"}, "spec": {}})
    with pytest.raises(Failure, match="has a Service words already"):
        JOB.submit()
    assert list(cluster.objects) == [("services", "words")]


def test_an_object_that_a_deleted_job_of_the_same_name_has_left_is_replaced(cluster: FakeCluster) -> None:
    JOB.submit()
    left = cluster.objects["services", "words"]
    left["metadata"].pop("ownerReferences")
    for name in JOBS:
        cluster.delete("jobs", name)
    JOB.submit()
    assert cluster.objects["services", "words"]["metadata"]["uid"] != left["metadata"]["uid"]


def test_other_objects_of_a_file_are_created_but_not_changed(cluster: FakeCluster, tmp_path: Path) -> None:
    beside = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "settings"}, "data": {"rate": "0.1"}}
    (tmp_path / "job.yaml").write_text(f"{yaml.safe_dump(beside)}---\n{WIDE_AND_DEEP.read_text()}")
    command("submit", *FLAGS, str(tmp_path / "job.yaml"))
    assert cluster.objects["configmaps", "settings"]["data"] == {"rate": "0.1"}
    cluster.objects["configmaps", "settings"]["data"] = {"rate": "0.2"}
    for name in cluster.names("jobs"):
        cluster.delete("jobs", name)
    again = command("submit", *FLAGS, str(tmp_path / "job.yaml"))
    assert "submit: ConfigMap settings: exists already and is not changed" in again.stderr
    assert cluster.objects["configmaps", "settings"]["data"] == {"rate": "0.2"}


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ("kind: ConfigMap\nmetadata:", "ConfigMap: metadata.name: missing"),
        ("kind: Deployment\nmetadata: {name: x}", "Deployment x: submit cannot create this kind, only Job, Pod"),
    ],
)
def test_another_object_that_cannot_be_created_is_refused_before_anything_is_created(
    cluster: FakeCluster, tmp_path: Path, beside: str, message: str
) -> None:
    (tmp_path / "job.yaml").write_text(f"{beside}\n---\n{WIDE_AND_DEEP.read_text()}")
    assert message in command("submit", *FLAGS, str(tmp_path / "job.yaml"), code=78).stderr
    assert not cluster.objects


def test_gang_scheduling_without_volcano_is_refused_and_leaves_nothing_behind(cluster: FakeCluster) -> None:
    cluster.refused["POST", "podgroups"] = (404, "the server could not find the requested resource")
    job = PaddleJob(job_name="words", entry_point="python t.py", runtime_image="i:1", gang_scheduling=True)
    with pytest.raises(Failure, match="is Volcano installed there"):
        job.submit()
    assert not cluster.objects


def test_deleting_a_job_deletes_all_of_its_objects_and_no_others(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    PaddleJob(job_name="other", entry_point="python t.py", runtime_image="i:1").submit()

    def end_pods(verb: str, plural: str) -> None:
        if verb == "DELETE":
            for name in [name for name in cluster.names("pods") if name.startswith("words")]:
                cluster.objects.pop(("pods", name))

    cluster.after = end_pods
    JOB.delete()
    assert {name.partition("-")[0] for _, name in cluster.objects} == {"other"}


def test_deleting_a_job_that_does_not_exist_names_the_namespace(cluster: FakeCluster) -> None:
    with pytest.raises(Failure, match="words: there is no such job in namespace ns"):
        JOB.delete()


def test_a_job_of_hand_written_manifests_is_not_deleted_and_the_command_of_kubectl_is_named(
    cluster: FakeCluster,
) -> None:
    put_manifests(cluster, "ps-and-workers/jobs.yaml")
    before = dict(cluster.objects)
    with pytest.raises(Failure, match="`kubectl -n ns delete job/paddle-ps job/paddle-worker` deletes it"):
        replace(JOB, job_name="paddle-worker").delete()
    assert cluster.objects == before


def test_a_claim_of_the_user_is_not_deleted_with_the_job(cluster: FakeCluster) -> None:
    claim = {"metadata": {"name": "paddle", "namespace": "ns"}, "spec": {}}
    cluster.put("persistentvolumeclaims", claim)
    job = PaddleJob(job_name="w", entry_point="p", runtime_image="i:1", volumes=[ClaimVolume("/data", "paddle")])
    job.submit()
    job.delete()
    assert list(cluster.objects) == [("persistentvolumeclaims", "paddle")]
