"""The whole launcher as process 1 of real pods: the seeds' plain Job on a shared volume, with the stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.gangs import make_volume

SLOW = ("--num_passes=100000",)


class Training:
    """One Job of three pods, and its folder on the volume, which this host shares."""

    def __init__(self, cluster: Cluster, name: str, volume: Path) -> None:
        self.cluster = cluster
        self.name = name
        self.volume = volume
        self.output = volume / name / "output"

    def submit(self, *flags: str, parallelism: int = SIZE, **variables: str) -> Training:
        job = self.cluster.job(self.name, self._template(flags, variables))
        job["spec"]["parallelism"] = parallelism
        self.cluster.create(job)
        return self

    def status(self) -> list[Json]:
        """What the volume says of each member."""
        found = []
        for rank in range(SIZE):
            try:
                found.append(json.loads((self.output / f"node_{rank}" / "status.json").read_text()))
            except FileNotFoundError:
                found.append({})
        return found

    def until_training(self) -> list[Json]:
        def all_train() -> bool:
            logs = [self.output / f"node_{rank}" / "train.log" for rank in range(SIZE)]
            return all(log.exists() and b"Batch=" in log.read_bytes() for log in logs)

        until(all_train, self.logs)
        return self.status()

    def until_ended(self) -> list[Json]:
        until(lambda: all(member.get("exit_code") is not None for member in self.status()), self.logs)
        return self.status()

    def logs(self) -> str:
        pods = [pod["metadata"]["name"] for pod in self.cluster.pods(f"job-name={self.name}")]
        return "\n".join(self.cluster.log(pod)[-2000:] for pod in pods)

    def _template(self, flags: tuple[str, ...], variables: dict[str, str]) -> Json:
        environment = {
            "JOB_NAME": self.name,
            "JOB_PATH": "/home/jobpath",
            "JOB_NAMESPACE": self.cluster.namespace,
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_NIC": "eth0",
            "CONF_PADDLE_PORT": "7164",
            "CONF_PADDLE_PORTS_NUM": "2",
            "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
            "CONF_PADDLE_GRADIENT_NUM": str(SIZE),
            "LAUNCHER_WORKDIR": "/root",
            "STANDIN_ON_PEER_DEATH": "hang",
        }
        container: dict[str, Any] = {
            "name": "trainer",
            "image": self.cluster.image,
            "command": ["paddle-launcher", "run", "--config=trainer_config.lr.py", "--log_period=1", *flags],
            "env": [{"name": key, "value": value} for key, value in (environment | variables).items()],
            "volumeMounts": [{"name": "jobpath", "mountPath": "/home/jobpath"}],
        }
        return {
            "spec": {
                "serviceAccountName": "member",
                "restartPolicy": "Never",
                "containers": [container],
                "volumes": [{"name": "jobpath", "hostPath": {"path": str(self.volume)}}],
            }
        }


@pytest.fixture
def training(cluster: Cluster, tmp_path: Path) -> Training:
    name = "paddle-cluster-job"
    volume = make_volume(tmp_path)
    (volume / "quick-start").rename(volume / name)
    return Training(cluster, name, volume)


def test_the_job_of_the_seeds_trains_and_completes(training: Training) -> None:
    training.submit("--num_passes=2")
    members = training.until_ended()
    assert [member["exit_code"] for member in members] == [0, 0, 0], training.logs()
    get = ("-n", training.cluster.namespace, "get", "job", training.name, "-o", "jsonpath={.status.succeeded}")
    until(lambda: kubectl(*get) == str(SIZE))
    assert sorted(done.parent.name for done in training.output.glob("pass-*/done")) == ["pass-00000", "pass-00001"]


def test_a_killed_trainer_is_told_by_every_pod_and_fails_the_job(training: Training) -> None:
    members = training.submit(*SLOW, STANDIN_BATCH_SECONDS="0.05").until_training()
    kill = ["pkill", "-9", "-f", "standin.paddle_trainer"]
    kubectl("-n", training.cluster.namespace, "exec", members[1]["pod"], "--", *kill)
    ended = training.until_ended()
    assert [member["exit_code"] for member in ended] == [69, 137, 69]
    assert {member["first_cause"]["pod"] for member in ended} == {members[1]["pod"]}
    get = ("-n", training.cluster.namespace, "get", "job", training.name, "-o", "json")
    until(lambda: any(c["type"] == "Failed" for c in json.loads(kubectl(*get))["status"].get("conditions", [])))


def test_a_missing_shard_fails_the_job_before_anything_trains(training: Training) -> None:
    (training.volume / training.name / "1").rename(training.volume / training.name / "one")
    ended = training.submit("--num_passes=2").until_ended()
    assert sorted(member["exit_code"] for member in ended) == [66, 69, 69]
    assert "one" in ended[0]["first_cause"]["what"]  # what was found beside it
    assert not list(training.output.glob("pass-*"))
    get = ("-n", training.cluster.namespace, "get", "job", training.name, "-o", "json")
    until(lambda: any(c["type"] == "Failed" for c in json.loads(kubectl(*get))["status"].get("conditions", [])))


def test_the_job_waits_for_a_pod_that_comes_late_and_says_so(training: Training) -> None:
    namespace = ("-n", training.cluster.namespace)
    training.submit("--num_passes=2", parallelism=2)
    until(lambda: "2 of 3" in training.logs(), training.logs)
    kubectl(*namespace, "patch", "job", training.name, "-p", json.dumps({"spec": {"parallelism": SIZE}}))
    assert [member["exit_code"] for member in training.until_ended()] == [0, 0, 0], training.logs()


def test_deleting_the_job_takes_no_grace_period(training: Training) -> None:
    training.submit(*SLOW, STANDIN_BATCH_SECONDS="0.05").until_training()
    kubectl("-n", training.cluster.namespace, "delete", "job", training.name, "--cascade=foreground", "--wait=false")
    until(lambda: not training.cluster.pods(f"job-name={training.name}"))
    assert {member["exit_code"] for member in training.until_ended()} <= {143, 69}
    assert {member["phase"] for member in training.status()} <= {"stopped", "failed"}


def test_a_lost_launcher_is_named_with_what_kubernetes_knows_of_its_pod(training: Training) -> None:
    members = training.submit(*SLOW, STANDIN_BATCH_SECONDS="0.05").until_training()
    lost = members[2]["pod"]
    for process in psutil.process_iter():  # the nodes are this machine: nobody in a pod can kill process 1
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
