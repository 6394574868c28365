"""Heter workers of the real Paddle in real pods: the manifests of k8s/heter, and a PaddleJob with `heter`.

Real Paddle comes from this host, as for tests/e2e/test_paddle.py: E2E_PADDLE_2.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.job.from_yaml import RenderOptions
from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, packages_of, pod_security, rendered
from tests.support.paths import K8S
from tests.support.rendering import example, jobs, render_text

EXAMPLE = K8S.parent / "examples" / "heter"
LEARNED = 0.25  # a cost that no model reaches that has not learned the words: it begins with 0.69
COST = re.compile(r"loss=([\d.]+)")


@pytest.fixture
def folder(claim: Path) -> Path:
    """Return the folder of the job of k8s/heter on its volume, with two shards."""
    made = claim / "paddle-heter"
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", claim / "source"], check=True)
    folders = ["--data", claim / "source" / "data", "--config", EXAMPLE, "--out", made, "--count", "2", "--anywhere"]
    subprocess.run([sys.executable, "-m", "launcher", "shard", *map(str, folders)], check=True)
    subprocess.run(["chmod", "-R", "a+rwX", made], check=True)
    return made


def costs(folder: Path, worker: int) -> list[float]:
    """Return the costs that a heter worker has printed, in all generations."""
    log = folder / "output" / f"heter_{worker}" / "heter.log"
    return [float(cost) for cost in COST.findall(log.read_text() if log.exists() else "")]


def with_paddle(cluster: Cluster, *words: str) -> list[Json]:
    """Return the manifests of k8s/heter whose program gets Paddle's packages and these words."""
    packages = packages_of("E2E_PADDLE_2")
    pod_security(cluster, "privileged")  # restricted namespaces allow no folder of a node
    objects = rendered(K8S / "heter", cluster)
    for job in (made for made in objects if made["kind"] == "Job"):
        mount(job["spec"]["template"]["spec"], "packages", packages)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        python = container["args"].index("python")
        container["args"][python:] = ["env", "PYTHONPATH=/packages", "python3", "train.py", *words]
    return objects


def mount(pod: Json, name: str, source: Path) -> None:
    pod.setdefault("volumes", []).append({"name": name, "hostPath": {"path": str(source)}})
    (container,) = pod["containers"]
    container.setdefault("volumeMounts", []).append({"name": name, "mountPath": f"/{name}"})


def test_trainers_a_server_and_heter_workers_train(cluster: Cluster, folder: Path) -> None:
    objects = with_paddle(cluster)
    apply(cluster, *objects)
    for name in jobs(objects):
        cluster.until_complete(name)
    said = [costs(folder, worker) for worker in range(2)]
    # Both workers train one model: the slower one may begin with what the other has learned.
    assert max(each[0] for each in said) > 1.5 * LEARNED
    assert max(each[-1] for each in said) < LEARNED


def test_a_killed_process_of_each_role_restarts_all_and_is_named(cluster: Cluster, folder: Path) -> None:
    apply(cluster, *with_paddle(cluster, "--passes=1000000"))
    killed = {"paddle-heter-trainer-1": "trainer", "paddle-heter-ps-0": "pserver", "paddle-heter-worker-1": "heter"}
    for generation, name in enumerate(killed):
        until(lambda: trains(folder, generation), lambda: cluster.logs("app.kubernetes.io/managed-by"))  # noqa: B023
        (pod,) = (pod for pod in pods(cluster) if pod.startswith(f"{name}-"))
        kubectl("-n", cluster.namespace, "exec", pod, "--", "pkill", "-9", "-f", "^python3 train.py")
    until(lambda: trains(folder, 3))
    causes = [each.get("first_cause") for each in job_file(folder)["generations"]]
    assert [cause["kind"] for cause in causes if cause] == list(killed.values())
    assert [cause["rank"] for cause in causes if cause] == [1, 0, 1]
    assert all("was killed by SIGKILL" in cause["what"] for cause in causes if cause)


def trains(folder: Path, generation: int) -> bool:
    """Return whether the heter workers have printed a cost in this generation."""
    numbers = [each["number"] for each in job_file(folder).get("generations") or []]
    logs = [folder / "output" / f"heter_{worker}" / "heter.log" for worker in range(2)]
    texts = [log.read_text().rpartition(f" generation {generation}, ")[2] if log.exists() else "" for log in logs]
    return numbers[-1:] == [generation] and all(map(COST.search, texts))


def job_file(folder: Path) -> dict[str, Any]:
    file = folder / "output" / "job.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def pods(cluster: Cluster) -> list[str]:
    text = kubectl("-n", cluster.namespace, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
    return text.split()


def test_a_paddle_job_with_heter_workers_trains(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    subprocess.run([sys.executable, folder / "make_data.py", folder, "--examples=2000"], check=True)
    subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
    objects = render_text(paddle_job(cluster, folder), RenderOptions(os.environ["E2E_INJECT_IMAGE"]))
    apply(cluster, *objects)
    for name in jobs(objects):
        cluster.until_complete(name)
    workers = [pod["metadata"]["name"] for pod in cluster.pods("job-name=clicks-heter")]
    said = "\n".join(map(cluster.log, workers))  # whole: after SIGTERM, Paddle prints where it was
    assert len(COST.findall(said)) == 2 * 20  # of two workers: 10 passes of 40 batches, one line for 20 batches
    assert min(map(float, COST.findall(said))) < LEARNED
    assert "Pass=9" in cluster.logs("job-name=clicks-worker")


def paddle_job(cluster: Cluster, folder: Path) -> str:
    """Return tests/paddlejobs/heter.yaml with two stages, whose containers run the example of this folder."""
    (job,) = yaml.safe_load_all(example("heter.yaml").replace("an/image:1", cluster.image))
    for role in ("ps", "worker", "heter"):
        pod = job["spec"][role]["template"]["spec"]
        mount(pod, "packages", packages_of("E2E_PADDLE_2"))
        mount(pod, "example", folder)
        (container,) = pod["containers"]
        container |= {"env": [], "command": ["env", "PYTHONPATH=/packages", "python3", "train.py"]}
        container["workingDir"] = "/example"
    return yaml.safe_dump(job)
