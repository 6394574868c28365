"""Submitting jobs, looking after them and deleting them, against a server that speaks that part of the API."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.errors import Exit
from launcher.job import ClaimVolume, Failure, PaddleJob
from launcher.job.state import FAILED, RUNNING, SUSPENDED, WAITING, JobState
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.jobs import until
from tests.support.paths import PADDLEJOBS

JOB = PaddleJob(job_name="words", entry_point="python train.py", runtime_image="an/image:1", trainers=2, pservers=1)
SEED_1 = PADDLEJOBS / "seed-1-wide-and-deep.yaml"
JOBS = ["words-pserver", "words-trainer"]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
    yield made
    made.close()


def pod(cluster: FakeCluster, role: str, rank: int, job: str = "words", again: str = "a", **state: Any) -> str:
    """A pod of the job, as Kubernetes makes it: its own container in this state."""
    name = f"{job}-{role}-{rank}-{again}"
    index = {"batch.kubernetes.io/job-completion-index": str(rank)}
    cluster.put(
        "pods",
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "labels": index | {"paddle-launcher/job": job},
                "creationTimestamp": f"2026-11-18T10:00:0{ord(again) - ord('a')}Z",
                "ownerReferences": [{"kind": "Job", "name": f"{job}-{role}", "uid": "u", "controller": True}],
            },
            "spec": {"containers": [{"name": "paddle"}], "terminationGracePeriodSeconds": 30},
            "status": {"phase": "Running", "containerStatuses": [{"name": "paddle", "state": state}]},
        },
    )
    return name


def ended(code: int, message: str, at: int = 0) -> Json:
    return {"terminated": {"exitCode": code, "message": message, "finishedAt": f"2026-11-18T10:01:0{at}Z"}}


def running_job(cluster: FakeCluster) -> None:
    JOB.submit()
    for role, rank in (("trainer", 0), ("trainer", 1), ("pserver", 0)):
        pod(cluster, role, rank, running={"startedAt": "2026-11-18T10:00:00Z"})


def in_background(work: Callable[[], int]) -> Future[int]:
    """What it gives in the end; a thread of its own."""
    result: Future[int] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def phases(state: JobState) -> list[tuple[str, str]]:
    return [(member.name, member.phase) for member in state.members]


def test_a_job_starts_once_all_that_it_needs_is_there(cluster: FakeCluster) -> None:
    started_with: list[list[str]] = []
    cluster.after = lambda verb, plural: started_with.append(cluster.names("secrets")) if verb == "PATCH" else None
    JOB.submit()
    assert cluster.created[0] == ("jobs", "words-trainer"), "whoever has this one has the job's name"
    assert sorted(cluster.names("jobs")) == JOBS
    assert cluster.names("services") == ["words"]
    until(lambda: started_with == [cluster.names("secrets")] * 2)
    assert len(started_with[0]) == 1
    assert all(cluster.objects["jobs", name]["spec"]["suspend"] is False for name in JOBS)


def test_all_that_a_job_is_made_of_goes_with_its_first_job(cluster: FakeCluster) -> None:
    JOB.submit()
    cluster.answer("DELETE", "jobs", "words-trainer", {}, None)
    assert not cluster.objects


@pytest.mark.parametrize("plural", ["secrets", "services"])
def test_a_submission_that_fails_leaves_nothing_behind(cluster: FakeCluster, plural: str) -> None:
    cluster.refused["POST", plural] = (422, f"{plural} are not allowed today")
    with pytest.raises(Failure, match=f"{plural} are not allowed today"):
        JOB.submit()
    assert not cluster.objects


def test_a_job_of_the_same_name_is_left_alone(cluster: FakeCluster) -> None:
    JOB.submit()
    before = dict(cluster.objects)
    with pytest.raises(Failure, match="has a Job words-trainer already: choose another name, or delete"):
        JOB.submit()
    assert cluster.objects == before


@pytest.mark.parametrize("way", ["submitted", "applied"])
def test_a_job_of_the_same_name_from_yaml_is_left_alone_too(cluster: FakeCluster, way: str) -> None:
    """Its Jobs are called otherwise, and what `render` made belongs to none of them."""
    flags = ("--no-inject", "--entrypoint", "python3 train.py")
    command("submit", *flags, str(SEED_1))
    if way == "applied":
        for each in cluster.objects.values():
            each["metadata"].pop("ownerReferences", None)
    before = dict(cluster.objects)
    job = PaddleJob(job_name="wide-ande-deep", entry_point="python t.py", runtime_image="i")
    with pytest.raises(Failure, match=r"has a Job wide-ande-deep-[a-z]+ already"):
        job.submit()
    assert cluster.objects == before


def test_an_object_of_somebody_else_is_not_taken_over(cluster: FakeCluster) -> None:
    cluster.put("services", {"metadata": {"name": "words", "namespace": "ns"}, "spec": {}})
    with pytest.raises(Failure, match="has a Service words already"):
        JOB.submit()
    assert list(cluster.objects) == [("services", "words")]


def test_what_a_job_of_this_name_left_behind_is_replaced(cluster: FakeCluster) -> None:
    JOB.submit()
    left = cluster.objects["services", "words"]
    left["metadata"].pop("ownerReferences")
    for name in JOBS:
        cluster.answer("DELETE", "jobs", name, {}, None)
    JOB.submit()
    assert cluster.objects["services", "words"]["metadata"]["uid"] != left["metadata"]["uid"]


def test_what_is_beside_a_job_is_created_but_not_changed(cluster: FakeCluster, tmp_path: Path) -> None:
    beside = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "settings"}, "data": {"rate": "0.1"}}
    (tmp_path / "job.yaml").write_text(f"{yaml.safe_dump(beside)}---\n{SEED_1.read_text()}")
    flags = ("--no-inject", "--entrypoint", "python3 train.py", str(tmp_path / "job.yaml"))
    command("submit", *flags)
    assert cluster.objects["configmaps", "settings"]["data"] == {"rate": "0.1"}
    cluster.objects["configmaps", "settings"]["data"] = {"rate": "0.2"}
    for name in cluster.names("jobs"):
        cluster.answer("DELETE", "jobs", name, {}, None)
    assert "ConfigMap settings: exists already and is not changed" in command("submit", *flags).stderr
    assert cluster.objects["configmaps", "settings"]["data"] == {"rate": "0.2"}


@pytest.mark.parametrize("beside", ["kind: ConfigMap\nmetadata:", "kind: Deployment\nmetadata: {name: x}"])
def test_what_cannot_be_beside_a_job_is_told_before_anything_is_created(
    cluster: FakeCluster, tmp_path: Path, beside: str
) -> None:
    (tmp_path / "job.yaml").write_text(f"{beside}\n---\n{SEED_1.read_text()}")
    command("submit", "--no-inject", "--entrypoint", "python3 train.py", str(tmp_path / "job.yaml"), code=78)
    assert not cluster.objects


def test_without_volcano_gang_scheduling_is_refused_and_nothing_is_left(cluster: FakeCluster) -> None:
    cluster.refused["POST", "podgroups"] = (404, "the server could not find the requested resource")
    job = PaddleJob(job_name="words", entry_point="python t.py", runtime_image="i", gang_scheduling=True)
    with pytest.raises(Failure, match="is Volcano installed there"):
        job.submit()
    assert not cluster.objects


def test_a_right_that_is_missing_is_named_with_where_to_get_it(cluster: FakeCluster) -> None:
    said = 'jobs.batch is forbidden: User "me" cannot create resource "jobs" in API group "batch" in the namespace "ns"'
    cluster.refused["POST", "jobs"] = (403, said)
    with pytest.raises(Failure, match=r"cannot create resource .*k8s/submitter") as caught:
        JOB.submit()
    assert caught.value.code == Exit.DENIED


def test_where_no_cluster_is_known_it_says_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(Failure, match=r"KUBECONFIG: '.*/none': no cluster is known"):
        JOB.submit()
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Failure, match=r"expected KUBECONFIG or ~/\.kube/config"):
        JOB.submit()


@pytest.mark.parametrize("content", ["a: [", "word", "clusters: 1", ""])
def test_a_broken_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (tmp_path / "broken").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    with pytest.raises(Failure, match=r"KUBECONFIG: '.*/broken'"):
        JOB.submit()


def test_a_server_that_does_not_answer_is_said_to(cluster: FakeCluster) -> None:
    cluster.close()
    with pytest.raises(Failure, match="cannot be reached"):
        JOB.submit()


def test_the_state_has_a_line_a_member_trainers_first(cluster: FakeCluster) -> None:
    JOB.submit()
    pod(cluster, "trainer", 1, running={"startedAt": "2026-11-18T10:00:00Z"})
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod(cluster, "pserver", 0, waiting=waiting)
    state = JOB.status()
    assert phases(state) == [("trainer 0", WAITING), ("trainer 1", RUNNING), ("pserver 0", WAITING)]
    assert state.phase == WAITING
    assert "no such image" in state.members[2].what


def test_a_job_that_was_not_submitted_as_a_whole_says_so(cluster: FakeCluster) -> None:
    running_job(cluster)
    cluster.objects["jobs", "words-pserver"]["spec"]["suspend"] = True
    assert JOB.status().phase == SUSPENDED


def test_of_several_pods_of_a_rank_the_newest_counts(cluster: FakeCluster) -> None:
    running_job(cluster)
    pod(cluster, "trainer", 1, **ended(137, "exit code 137: rank 1: killed"))
    pod(cluster, "trainer", 1, again="b", running={})
    assert phases(JOB.status())[1] == ("trainer 1", RUNNING)


LOST = ended(76, "exit code 76: trainer 1 (x) was lost", 3)
TOLD = ended(143, "exit code 143: told to stop", 1)
CONSEQUENCE = ended(69, "exit code 69: ended because of a peer: trainer 1 (x): ended with 3", 2)
CAUSE = ended(3, "exit code 3: trainer 1 (x): ended with 3", 3)
SAID = "Container paddle for pod ns/x failed with exit code 66 matching FailJob rule"


@pytest.mark.parametrize(
    ("ends", "code", "cause"),
    [
        ([CONSEQUENCE, CAUSE], 3, "trainer 1 (x): ended with 3"),
        ([LOST, CAUSE], 3, "trainer 1 (x): ended with 3"),
        ([TOLD, CONSEQUENCE], 66, "ended because of a peer: trainer 1 (x): ended with 3"),
        ([], 66, f"PodFailurePolicy: {SAID}"),
    ],
    ids=["seen", "seen beside who lost it", "a consequence is left", "no pod is left"],
)
def test_the_exit_code_of_a_failed_job_is_that_of_the_first_cause(
    cluster: FakeCluster, ends: list[Json], code: int, cause: str
) -> None:
    JOB.submit()
    for rank, end in enumerate(ends):
        pod(cluster, "trainer", rank, **end)
    cluster.end("words-trainer", "Failed", reason="PodFailurePolicy", message=SAID)
    state = JOB.status()
    assert (state.phase, state.exit_code, state.cause) == (FAILED, code, cause)


def test_waiting_ends_with_zero_once_all_jobs_are_complete(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    running_job(cluster)
    cluster.logs = {"words-trainer-0-a": ["first", "Pass=3 Batch=7 loss=0.2"]}
    waiting = in_background(lambda: JOB.wait())
    until(lambda: "Pass=3 Batch=7" in capsys.readouterr().err)
    cluster.end("words-trainer", "Complete")
    for role, rank in (("trainer", 0), ("trainer", 1), ("pserver", 0)):
        pod(cluster, role, rank, **ended(0, "exit code 0: the job is complete"))
    cluster.end("words-pserver", "Complete")
    assert waiting.result(20) == 0
    said = capsys.readouterr().err
    assert "trainer 1" in said
    assert said.endswith("words: the job is complete\n")


def test_waiting_ends_with_the_code_of_a_pod_that_kubernetes_has_deleted_since(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    running_job(cluster)
    waiting = in_background(lambda: JOB.wait())
    pod(cluster, "trainer", 1, **ended(3, "exit code 3: trainer 1 (words-trainer-1-a): trainer ended with 3"))
    until(lambda: "failed" in capsys.readouterr().err)
    for name in cluster.names("pods"):
        cluster.answer("DELETE", "pods", name, {}, None)
    for name in JOBS:
        cluster.end(name, "Failed", reason="BackoffLimitExceeded", message="too often")
    assert waiting.result(20) == 3
    assert "words: exit code 3: trainer 1 (words-trainer-1-a): trainer ended with 3" in capsys.readouterr().err


def test_waiting_has_an_end_that_can_be_set_and_the_job_goes_on(cluster: FakeCluster) -> None:
    running_job(cluster)
    with pytest.raises(
        Failure, match=r"words has not ended after 0\.1 s: trainer 0 running; .*The job continues"
    ) as caught:
        JOB.wait(timeout=0.1, quiet=True)
    assert caught.value.code == Exit.TIMED_OUT


def test_waiting_has_that_end_too_while_the_api_server_is_away(cluster: FakeCluster) -> None:
    running_job(cluster)
    cluster.refused["GET", "jobs"] = (503, "restarting")
    with pytest.raises(Failure, match=r"words has not ended after 0\.1 s: the API server .* 503"):
        JOB.wait(timeout=0.1, quiet=True)


def test_a_job_that_kubernetes_removes_at_its_end_has_ended_all_the_same(cluster: FakeCluster) -> None:
    running_job(cluster)
    looked = threading.Event()
    for role, rank in (("trainer", 0), ("trainer", 1), ("pserver", 0)):
        pod(cluster, role, rank, **ended(0, "exit code 0: the job is complete"))
    cluster.after = lambda verb, plural: looked.set() if plural == "pods" else None
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert looked.wait(20)
    cluster.objects.clear()
    assert waiting.result(20) == 0


def test_a_job_that_somebody_deletes_is_not_taken_for_one_that_never_was(cluster: FakeCluster) -> None:
    running_job(cluster)
    looked = threading.Event()
    cluster.after = lambda verb, plural: looked.set() if plural == "pods" else None

    def delete() -> None:
        assert looked.wait(20)
        cluster.objects.clear()

    threading.Thread(target=delete, daemon=True).start()
    with pytest.raises(Failure, match="words was deleted before it ended"):
        JOB.wait(quiet=True)


def test_a_server_that_has_just_started_and_knows_no_roles_does_not_end_the_waiting(cluster: FakeCluster) -> None:
    running_job(cluster)
    looked, refused = threading.Event(), threading.Event()
    cluster.after = lambda verb, plural: looked.set() if plural == "pods" else None
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert looked.wait(20)
    cluster.refused["GET", "jobs"] = (403, 'jobs is forbidden: User "me" cannot list resource "jobs"')
    cluster.after = lambda verb, plural: refused.set()
    assert refused.wait(20)
    for name in JOBS:
        cluster.end(name, "Complete")
    cluster.refused.clear()
    assert waiting.result(20) == 0


def test_waiting_survives_an_api_server_that_is_away_for_a_while(cluster: FakeCluster) -> None:
    running_job(cluster)
    for name in JOBS:
        cluster.end(name, "Complete")
    cluster.refused["GET", "jobs"] = (503, "restarting")
    seen = threading.Event()
    cluster.after = lambda verb, plural: seen.set() if plural == "jobs" else None
    waiting = in_background(lambda: JOB.wait(quiet=True))
    assert seen.wait(20)
    cluster.refused.clear()
    assert waiting.result(20) == 0


def test_a_log_is_followed_over_a_cut_and_no_line_is_lost_or_said_twice(cluster: FakeCluster) -> None:
    running_job(cluster)
    name = "words-trainer-1-a"
    cluster.logs[name] = ["one", "two", "three", "CUT", "five"]
    found = JOB.logs(1, follow=True)
    assert [next(found) for _ in range(5)] == ["one", "two", "three", "after the cut", "five"]
    cluster.refused["GET", "pods"] = (503, "restarting")
    pod(cluster, "trainer", 1, **ended(0, ""))
    cluster.after = lambda verb, plural: cluster.refused.clear()
    assert list(found) == []


def test_the_log_of_a_member_that_has_not_started_says_why_there_is_none(cluster: FakeCluster) -> None:
    JOB.submit()
    pod(cluster, "pserver", 0, waiting={"reason": "ErrImagePull"})
    with pytest.raises(Failure, match=r"pserver 0 of words has no log: .*ErrImagePull"):
        list(JOB.logs(0, role="pserver"))
    with pytest.raises(Failure, match="words has 2 trainers: expected a rank from 0 to 1"):
        list(JOB.logs(2))


def test_following_a_log_says_what_it_waits_for(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    JOB.submit()
    name = pod(cluster, "trainer", 0, waiting={"reason": "ErrImagePull"})
    cluster.logs[name] = ["hello"]
    lines: list[str] = []
    following = threading.Thread(target=lambda: lines.extend(JOB.logs(0, follow=True)))
    following.start()
    until(lambda: re.search("trainer 0 of words has no log yet: .*ErrImagePull", capsys.readouterr().err))
    pod(cluster, "trainer", 0, **ended(0, ""))
    following.join(20)
    assert lines == ["hello"]


def test_deleting_a_job_removes_all_of_it_and_nothing_else(cluster: FakeCluster) -> None:
    running_job(cluster)
    PaddleJob(job_name="other", entry_point="python t.py", runtime_image="i").submit()

    def end_pods(verb: str, plural: str) -> None:
        if verb == "DELETE":
            for name in [name for name in cluster.names("pods") if name.startswith("words")]:
                cluster.objects.pop(("pods", name))

    cluster.after = end_pods
    JOB.delete()
    assert {name.partition("-")[0] for _, name in cluster.objects} == {"other"}


def test_deleting_what_is_not_there_says_so(cluster: FakeCluster) -> None:
    with pytest.raises(Failure, match="words: there is no such job in namespace ns"):
        JOB.delete()
    with pytest.raises(Failure, match="words: there is no such job in namespace ns"):
        JOB.status()


def test_a_claim_of_the_users_is_not_the_jobs(cluster: FakeCluster) -> None:
    claim = {"metadata": {"name": "paddle", "namespace": "ns"}, "spec": {}}
    cluster.put("persistentvolumeclaims", claim)
    job = PaddleJob(job_name="w", entry_point="p", runtime_image="i", volumes=[ClaimVolume("/data", "paddle")])
    job.submit()
    job.delete()
    assert list(cluster.objects) == [("persistentvolumeclaims", "paddle")]


def command(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "launcher", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_command_line_submits_shows_and_deletes_a_paddle_job(cluster: FakeCluster) -> None:
    file = str(SEED_1)
    done = command("submit", "--no-inject", "--entrypoint", "python3 train.py", file)
    assert done.stdout.startswith("submitted wide-ande-deep to namespace ns: 4 pods\n")
    for rank in range(2):
        for role in ("worker", "ps"):
            name = pod(cluster, role, rank, "wide-ande-deep", running={"startedAt": "2026-11-18T10:00:00Z"})
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
    assert command("logs", "wide-ande-deep", "1").stdout == "worker 1 says hello\n"
    assert command("logs", "wide-ande-deep", "-n", "ns", "--role", "pserver", "0").stdout == "ps 0 says hello\n"
    for name in cluster.names("pods"):
        cluster.objects.pop(("pods", name))
    assert command("delete", "-n", "ns", "wide-ande-deep").stdout == "deleted wide-ande-deep\n"
    assert not cluster.objects


def test_submit_watch_ends_with_the_jobs_exit_code(cluster: FakeCluster) -> None:
    def fail(verb: str, plural: str) -> None:
        if verb == "PATCH":
            pod(cluster, "worker", 1, "wide-ande-deep", **ended(3, "exit code 3: trainer 1 (x): ended with 3"))
            for role in ("worker", "ps"):
                cluster.end(f"wide-ande-deep-{role}", "Failed", reason="BackoffLimitExceeded", message="too often")

    cluster.after = fail
    done = command("submit", "--watch", "--no-inject", "--entrypoint", "python3 train.py", str(SEED_1), code=3)
    assert done.stderr.splitlines()[-1] == "wide-ande-deep: exit code 3: trainer 1 (x): ended with 3"


def test_ctrl_c_while_a_job_is_created_takes_it_back(cluster: FakeCluster) -> None:
    """It waits for what a deleted job of this name has left to go, which it never does here."""
    going = {"labels": {"paddle-launcher/job": "wide-ande-deep"}, "ownerReferences": [{"uid": "gone"}]}
    cluster.put("services", {"metadata": {"name": "wide-ande-deep", "namespace": "ns", **going}, "spec": {}})
    words = ["submit", "--no-inject", "--entrypoint", "python3 train.py", str(SEED_1)]
    running = subprocess.Popen([sys.executable, "-m", "launcher", *words], stderr=subprocess.PIPE, text=True)
    until(lambda: cluster.names("jobs") and cluster.names("secrets"))
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=20)
    assert running.returncode == 130, said
    assert said == "submit: wide-ande-deep: interrupted, and what was created is taken back\n"
    assert list(cluster.objects) == [("services", "wide-ande-deep")]


def test_a_status_of_neither_folder_nor_job_names_the_namespace(cluster: FakeCluster) -> None:
    assert "words: there is no such job in namespace ns" in command("status", "words", code=66).stderr
