"""`paddle-launcher list`: all jobs of a namespace, from their Jobs, StatefulSets and pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.job.access import connect
from launcher.job.listing import ListedJob, list_jobs
from launcher.job.listing_table import table
from tests.support.fake_cluster import FakeCluster
from tests.support.submitted import command, ended, running, submit_and_run
from tests.support.workloads import put_manifests, put_pod_of, put_workload

NOW = 1_795_000_000.0
MANIFESTS = {
    "job/job.yaml": ("paddle-cluster-job", "v0", 3),
    "job-indexed/job.yaml": ("paddle-indexed-job", "v0", 3),
    "single/job.yaml": ("quickstart", "v0", 1),
    "statefulset/statefulset.yaml": ("paddle-set", "v0", 3),
    "ps-and-workers/jobs.yaml": ("paddle-worker", "ps", 5),
    "heter/jobs.yaml": ("paddle-heter-trainer", "ps", 5),
}


def listed(everywhere: bool = False) -> list[ListedJob]:
    return list_jobs(connect(), everywhere=everywhere)


def only(everywhere: bool = False) -> ListedJob:
    (found,) = listed(everywhere)
    return found


def fail(cluster: FakeCluster, name: str) -> None:
    cluster.end(name, "Failed", reason="BackoffLimitExceeded", message="too often")


@pytest.mark.parametrize("path", MANIFESTS)
def test_jobs_of_hand_written_manifests_are_found_with_their_mode_and_members(cluster: FakeCluster, path: str) -> None:
    put_manifests(cluster, path)
    name, mode, members = MANIFESTS[path]
    found = only()
    assert (found.name, found.mode, found.ready, found.members) == (name, mode, 0, members)
    assert found.phase == "waiting"
    assert found.folder.startswith("/home/jobpath/")


def test_two_jobs_with_one_role_each_are_one_job(cluster: FakeCluster) -> None:
    put_manifests(cluster, "ps-and-workers/jobs.yaml")
    assert only().objects == ("Job/paddle-ps", "Job/paddle-worker")


def test_submitted_jobs_are_listed_by_their_label(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    found = only()
    assert (found.namespace, found.name, found.mode, found.members) == ("ns", "words", "ps", 3)


@pytest.mark.parametrize(
    "container",
    [
        {"name": "x", "image": "nginx"},
        {"name": "x", "env": [{"name": "JOB_NAME", "value": "other"}], "command": ["python", "train.py"]},
        {"name": "x", "command": ["paddle-launcher"], "args": ["shard", "--data", "d"]},
        {"name": "x", "env": [{"name": "OUT_DIR", "value": "/v"}, {"name": "SPLIT_COUNT", "value": "3"}]},
    ],
    ids=["a web server", "another job", "a data job", "the data job of the manifests"],
)
def test_what_is_no_job_of_the_launcher_is_not_listed(cluster: FakeCluster, container: dict[str, Any]) -> None:
    put_workload(cluster, "jobs", "other", {"template": {"spec": {"containers": [container]}}})
    put_workload(cluster, "statefulsets", "db", {"template": {"spec": {"containers": [container]}}})
    assert listed() == []
    assert ("GET", "pods") not in cluster.asked


def test_a_job_that_calls_the_program_of_2016_is_listed(cluster: FakeCluster) -> None:
    container = {"name": "x", "command": ["python", "/root/start_paddle.py", "--num_passes=3"]}
    put_workload(cluster, "jobs", "old", {"parallelism": 2, "template": {"spec": {"containers": [container]}}})
    assert (only().name, only().members, only().mode) == ("old", 2, "v0")


def test_a_running_job_has_its_ready_pods_and_the_pass_of_its_log(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    for number in range(3):
        name = put_pod_of(cluster, "paddle-cluster-job", number, indexed=False, **running())
        cluster.logs[name] = ["training pass=4/8 batch=10/20 loss=0.5"]
    found = only()
    assert (found.phase, found.ready, found.current_pass, found.first_cause) == ("running", 3, "4/8", "")


def test_without_numbers_in_the_log_there_is_no_pass(cluster: FakeCluster) -> None:
    put_manifests(cluster, "single/job.yaml")
    (name,) = cluster.names("jobs")
    put_pod_of(cluster, name, 0, indexed=False, **running())
    assert (only().phase, only().current_pass) == ("running", "")


def test_a_failed_job_has_the_first_cause_of_its_pods_messages(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    messages = [(69, "ended because of a peer", 2), (3, "rank 1 (x): trainer ended with 3", 1), (143, "got SIGTERM", 0)]
    for number, (code, text, second) in enumerate(messages):
        end = ended(code, f"exit code {code}: {text}", second)
        put_pod_of(cluster, "paddle-cluster-job", number, indexed=False, **end)
    fail(cluster, "paddle-cluster-job")
    found = only()
    assert (found.phase, found.exit_code, found.first_cause) == ("failed", 3, "rank 1 (x): trainer ended with 3")


def test_a_failed_job_without_pods_has_the_reason_of_its_condition(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    fail(cluster, "paddle-cluster-job")
    assert only().first_cause == "BackoffLimitExceeded: too often"


def test_a_restarted_container_of_a_set_is_counted_and_its_cause_shown(cluster: FakeCluster) -> None:
    put_manifests(cluster, "statefulset/statefulset.yaml")
    last = ended(137, "exit code 137: rank 1 (x): trainer ran out of memory")["terminated"]
    for number in range(3):
        more = {"restarts": 2, "last": last} if number == 1 else {}
        put_pod_of(cluster, "paddle-set", number, **running(), **more)
    found = only()
    assert (found.phase, found.restarts) == ("running", 2)
    assert (found.exit_code, found.first_cause) == (137, "rank 1 (x): trainer ran out of memory")


def test_pods_that_a_job_has_replaced_count_as_restarts(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    cluster.objects["jobs", "paddle-cluster-job"]["status"] = {"active": 3, "failed": 2}
    assert only().restarts == 2


def test_a_complete_job_has_no_cause(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    for number in range(3):
        put_pod_of(cluster, "paddle-cluster-job", number, indexed=False, **ended(0, "exit code 0: complete"))
    cluster.end("paddle-cluster-job", "Complete")
    found = only()
    assert (found.phase, found.exit_code, found.first_cause) == ("complete", 0, "")


def test_a_job_that_has_ended_has_the_last_pass_of_its_log(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    for number in range(3):
        name = put_pod_of(cluster, "paddle-cluster-job", number, indexed=False, **ended(0, "exit code 0: complete"))
        cluster.logs[name] = ["Pass=9 samples=300 loss=0.1"]
    cluster.end("paddle-cluster-job", "Complete")
    assert (only().phase, only().current_pass) == ("complete", "9")
    (single,) = put_manifests(cluster, "single/job.yaml")
    spec = cluster.objects.pop(("jobs", single))["spec"]
    for number in range(20):
        put_workload(cluster, "jobs", f"job-{number}", spec)
        name = put_pod_of(cluster, f"job-{number}", 0, indexed=False, **running())
        cluster.logs[name] = ["Pass=3 loss=0.5"]
    assert {job.name: job.current_pass for job in listed() if job.current_pass != "3"} == {"paddle-cluster-job": ""}


def test_a_job_whose_pods_have_all_failed_retries_until_kubernetes_gives_up(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    put_pod_of(cluster, "paddle-cluster-job", 0, indexed=False, **ended(3, "exit code 3: rank 0 (x): ended with 3"))
    put_pod_of(cluster, "paddle-cluster-job", 1, indexed=False, **ended(69, "exit code 69: because of a peer"))
    assert (only().phase, only().first_cause) == ("retries", "rank 0 (x): ended with 3")
    put_pod_of(cluster, "paddle-cluster-job", 2, indexed=False, waiting={})
    assert only().phase == "waiting"


def test_many_jobs_take_one_list_per_kind_and_page_and_no_log(cluster: FakeCluster) -> None:
    put_manifests(cluster, "single/job.yaml")
    spec = next(iter(cluster.objects.values()))["spec"]
    cluster.objects.clear()
    for number in range(1000):
        put_workload(cluster, "jobs", f"job-{number}", spec)
        put_pod_of(cluster, f"job-{number}", 0, indexed=False, **running())
    found = listed()
    assert len(found) == 1000
    assert {job.phase for job in found} == {"running"}
    asked = [plural for _, plural in cluster.asked]
    assert (asked.count("jobs"), asked.count("pods"), asked.count("statefulsets")) == (2, 2, 1)


def test_a_list_whose_next_page_is_too_old_begins_again(cluster: FakeCluster) -> None:
    for number in range(600):
        put_workload(cluster, "jobs", f"job-{number}", {"template": {"spec": {"containers": [{"name": "x"}]}}})
    cluster.expired = 1
    assert len(connect().list_all("Job")) == 600
    cluster.expired = 9
    with pytest.raises(Failure, match="too old"):
        connect().list_all("Job")


def test_all_namespaces_are_listed_with_their_names(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml", "b")
    put_manifests(cluster, "statefulset/statefulset.yaml", "a")
    assert listed() == []
    assert [(job.namespace, job.name) for job in listed(True)] == [("a", "paddle-set"), ("b", "paddle-cluster-job")]
    lines = command("list", "-A").stdout.splitlines()
    assert lines[0].split() == [
        "NAMESPACE",
        "NAME",
        "STATUS",
        "MODE",
        "READY",
        "PASS",
        "RESTARTS",
        "AGE",
        "FIRST",
        "CAUSE",
    ]
    assert lines[1].split()[:5] == ["a", "paddle-set", "waiting", "v0", "0/3"]


def test_the_table_is_aligned_and_fits_a_terminal_unless_it_is_wide(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    put_manifests(cluster, "statefulset/statefulset.yaml")
    text = "rank 1 (x): " + "too long " * 20 + "\x1b[31m"
    put_pod_of(cluster, "paddle-cluster-job", 0, indexed=False, **ended(3, f"exit code 3: {text}"))
    fail(cluster, "paddle-cluster-job")
    short = table(listed(), everywhere=False, wide=False, width=120, now=NOW).splitlines()
    assert len({line.index(word) for line, word in zip(short, ("STATUS", "failed", "waiting"), strict=True)}) == 1
    assert short[1].endswith(" ...")
    assert len(short[1]) == 120
    assert "too long \\x1b[31m" in table(listed(), everywhere=False, wide=False, now=NOW)
    wide = table(listed(), everywhere=False, wide=True, now=NOW)
    assert "Job/paddle-cluster-job" in wide
    assert "/home/jobpath/paddle-cluster-job" in wide
    assert "too long \\x1b[31m" in wide
    assert "\x1b" not in wide


def test_json_has_all_fields(cluster: FakeCluster) -> None:
    put_manifests(cluster, "job/job.yaml")
    (item,) = json.loads(command("list", "-o", "json").stdout)["items"]
    assert (item["name"], item["mode"], item["members"], item["exit_code"]) == ("paddle-cluster-job", "v0", 3, None)
    assert item["objects"] == ["Job/paddle-cluster-job"]


def test_a_namespace_without_jobs_is_told_as_kubectl_does(cluster: FakeCluster) -> None:
    done = command("list", "-n", "research")
    assert (done.stdout, done.stderr) == ("", "No jobs found in research namespace.\n")
    assert command("list", "-A").stderr == "No jobs found.\n"
    assert json.loads(command("list", "-o", "json").stdout) == {"items": []}


def test_without_the_permission_for_statefulsets_jobs_are_listed(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    put_manifests(cluster, "job/job.yaml")
    cluster.refused["GET", "statefulsets"] = (403, 'User "me" cannot list resource "statefulsets"')
    assert only().name == "paddle-cluster-job"
    assert "StatefulSets are not listed: " in capsys.readouterr().err


def test_a_refused_list_names_the_missing_permission(cluster: FakeCluster) -> None:
    cluster.refused["GET", "jobs"] = (403, 'User "me" cannot list resource "jobs"')
    message = command("list", code=Exit.DENIED).stderr
    assert 'User "me" cannot list resource "jobs"' in message
    assert "RBAC permissions of k8s/submitter, in namespace ns" in message
    assert "in a ClusterRole. Without -A" in command("list", "-A", code=Exit.DENIED).stderr


def test_without_a_cluster_the_message_names_the_files_that_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/config")
    assert "/nonexistent/config" in command("list", code=Exit.CONFIG).stderr
