"""Jobs whose number of pods changes while they train, by the commands of docs/elastic.md.

SIZE_CHANGES says how often the size of each job changes at a random moment (default 4). E2E_PADDLE_2 and E2E_PADDLE_3
name the site-packages folders that have Paddle 2.6.2 and 3.3.1.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, packages_of, pod_security, rendered
from tests.support import resized, resized_v0
from tests.support.jobs import JOB
from tests.support.paths import K8S

_CHANGES = {
    "CONF_PADDLE_GRADIENT_NUM": "1:3",
    "LAUNCHER_MAX_RESTARTS": "3",
    "LAUNCHER_SETTLE": "5",
}


class ElasticJob:
    """A job of k8s/ with two of one to three pods. Its trainers wait before the passes 2, 3 and 4."""

    def __init__(
        self, cluster: Cluster, volume: Path, folder: str, kind: str, name: str, *, suspended: bool = False
    ) -> None:
        self._cluster = cluster
        self.folder = volume / name
        (volume / "quick-start").rename(self.folder)
        self._gates = self.folder / "gates"
        self._gates.mkdir()
        for number in (2, 3, 4):
            (self._gates / f"pass-{number}").touch()
        objects = rendered(K8S / folder, cluster)
        (made,) = (made for made in objects if made["kind"] == kind)
        _set_variables(made, _CHANGES | {"STANDIN_GATES": f"/home/jobpath/{name}/gates"})
        spec = made["spec"]
        spec |= {"replicas": 2} if kind == "StatefulSet" else {"parallelism": 2, "completions": 2}
        if suspended:
            spec |= {"suspend": True, "parallelism": 3, "completions": 3}
        apply(cluster, *objects)
        self._object = f"{kind.lower()}/{name}"

    def scale(self, *words: str) -> None:
        kubectl("-n", self._cluster.namespace, words[0], self._object, *words[1:])

    def open_gate(self, number: int) -> None:
        (self._gates / f"pass-{number}").unlink()

    def generations(self) -> list[dict[str, Any]]:
        path = self.folder / "output" / "job.json"
        return list(json.loads(path.read_text())["generations"]) if path.exists() else []

    def log(self) -> str:
        path = self.folder / "output" / "node_0" / "events.jsonl"
        return path.read_text() if path.exists() else ""

    def saved(self, number: int) -> bool:
        return (self.folder / "output" / f"pass-{number:05d}" / "done").exists()

    def sizes(self) -> list[int]:
        return [generation["trainers"] for generation in self.generations()]

    def is_complete(self) -> bool:
        path = self.folder / "output" / "node_0" / "status.json"
        return path.exists() and json.loads(path.read_text())["phase"] == "complete"


def _set_variables(made: Json, values: dict[str, str]) -> None:
    (container,) = made["spec"]["template"]["spec"]["containers"]
    kept = [entry for entry in container["env"] if entry["name"] not in values]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in values.items())]


def grows_and_shrinks(
    cluster: Cluster, job: ElasticJob, pods: str, more: tuple[str, ...], less: tuple[str, ...]
) -> None:
    until(lambda: job.saved(1), lambda: cluster.logs(pods))
    assert job.sizes() == [2]
    job.scale(*more)
    until(lambda: "a new member waits" in cluster.logs(pods), lambda: cluster.logs(pods))
    job.open_gate(2)
    until(lambda: job.sizes() == [2, 3], lambda: cluster.logs(pods))
    assert job.generations()[1]["after_pass"] == 2, "no pass is lost"
    job.open_gate(3)
    until(lambda: job.saved(3), lambda: cluster.logs(pods))
    job.scale(*less)
    until(lambda: job.sizes() == [2, 3, 2], lambda: cluster.logs(pods))
    assert job.generations()[2]["after_pass"] == 3
    job.open_gate(4)
    until(job.is_complete, lambda: cluster.logs(pods))


def test_a_stateful_set_grows_and_shrinks_by_its_replicas(cluster: Cluster, claim: Path) -> None:
    job = ElasticJob(cluster, claim, "statefulset", "StatefulSet", "paddle-set")
    pods = "app.kubernetes.io/instance=paddle-set"
    grows_and_shrinks(cluster, job, pods, ("scale", "--replicas=3"), ("scale", "--replicas=2"))


def test_an_indexed_job_grows_and_shrinks_by_its_completions(cluster: Cluster, claim: Path) -> None:
    job = ElasticJob(cluster, claim, "job-indexed", "Job", "paddle-indexed-job")
    sizes = [json.dumps({"spec": {"parallelism": count, "completions": count}}) for count in (3, 2)]
    grows_and_shrinks(
        cluster, job, "job-name=paddle-indexed-job", ("patch", "--patch", sizes[0]), ("patch", "--patch", sizes[1])
    )


def test_a_job_starts_with_as_many_pods_as_kueue_admits_and_continues_with_those_that_it_admits_later(
    cluster: Cluster, claim: Path
) -> None:
    """Kueue lowers parallelism and completions before it starts a Job, and restores them when it stops the Job."""
    job = ElasticJob(cluster, claim, "job-indexed", "Job", "paddle-indexed-job", suspended=True)
    pods = "job-name=paddle-indexed-job"

    def admit(count: int, *, suspend: bool) -> None:
        spec = {"suspend": suspend, "parallelism": count, "completions": count}
        job.scale("patch", "--patch", json.dumps({"spec": spec}))

    admit(2, suspend=False)
    until(lambda: job.saved(1), lambda: cluster.logs(pods))
    assert job.sizes() == [2]
    admit(3, suspend=True)
    until(lambda: not cluster.pods(pods))
    admit(3, suspend=False)
    job.open_gate(2)
    until(lambda: job.sizes() == [2, 3], lambda: cluster.logs(pods))
    assert job.generations()[1]["after_pass"] == 1
    job.open_gate(3)
    job.open_gate(4)
    cluster.until_complete("paddle-indexed-job")


KINDS = {"Job": ("job-indexed", "paddle-indexed-job"), "StatefulSet": ("statefulset", "paddle-set")}
_RANGE = {
    "CONF_PADDLE_GRADIENT_NUM": f"{resized.LEAST}:{resized.MOST}",
    "LAUNCHER_MAX_RESTARTS": "3",
    "LAUNCHER_SETTLE": "5",
}
_EACH_KIND = pytest.mark.parametrize("kind", KINDS)
_ALL_CHANGES = pytest.mark.timeout(600 + 60 * resized.CHANGES)


def scale(cluster: Cluster, name: str, count: int) -> str:
    """Run `paddle-launcher scale`, and return what it says."""
    words = ["scale", "-n", cluster.namespace, name, str(count)]
    done = subprocess.run([sys.executable, "-m", "launcher", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def put_volume(claim: Path, name: str, made: Path) -> Path:
    """Put a job's folder into the volume of the pods, and return its path here."""
    shutil.rmtree(claim / JOB)
    shutil.move(made / JOB, claim / name)
    subprocess.run(["chmod", "-R", "a+rwX", claim / name], check=True)
    return claim / name


def elastic_object(cluster: Cluster, kind: str, variables: dict[str, str]) -> tuple[list[Json], Json, Json]:
    """Return the objects of a job of k8s/ with two pods, its Job or StatefulSet, and its container."""
    objects = rendered(K8S / KINDS[kind][0], cluster)
    (made,) = (made for made in objects if made["kind"] == kind)
    made["spec"] |= {"replicas": 2} if kind == "StatefulSet" else {"parallelism": 2, "completions": 2}
    _set_variables(made, _RANGE | variables)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    return objects, made, container


@_ALL_CHANGES
@pytest.mark.parametrize("variable", ["E2E_PADDLE_2", "E2E_PADDLE_3"])
@_EACH_KIND
def test_with_paddle_a_job_that_changes_at_random_moments_learns_what_one_process_learns(
    cluster: Cluster, claim: Path, tmp_path: Path, kind: str, variable: str
) -> None:
    packages, name = packages_of(variable), KINDS[kind][1]
    pod_security(cluster, "privileged")  # restricted namespaces allow no folder of a node
    job = put_volume(claim, name, resized.make_resized(tmp_path / "made"))
    objects, made, container = elastic_object(cluster, kind, {"LAUNCHER_MODE": "collective"})
    program = resized.program(f"/home/jobpath/{name}")
    container["args"] = ["run", "--", "env", "PYTHONPATH=/packages", "python3", *program]
    container["volumeMounts"].append({"name": "packages", "mountPath": "/packages", "readOnly": True})
    pod = made["spec"]["template"]["spec"]
    pod["volumes"].append({"name": "packages", "hostPath": {"path": str(packages)}})
    story = resized.Story(job, lambda count: print(scale(cluster, name, count)), lambda: events(job))
    apply(cluster, *objects)
    story.play()
    story.complete()
    passes = story.assert_each_line_once_per_pass()
    one = story.loss_of_one(python_of(packages), passes)
    print(f"{kind}, {variable}: {passes} passes, {story.seconds}, loss {story.loss()}, of one process {one}")
    assert story.loss() == pytest.approx(one, abs=resized.TOLERANCE)


@_ALL_CHANGES
@_EACH_KIND
def test_with_v0_a_job_that_changes_at_random_moments_learns_as_one_of_fixed_size(
    cluster: Cluster, claim: Path, tmp_path: Path, kind: str
) -> None:
    name = KINDS[kind][1]
    job = put_volume(claim, name, resized.make_resized(tmp_path / "made"))
    objects, _, container = elastic_object(cluster, kind, {"STANDIN_BATCH_SECONDS": resized_v0.SECONDS})
    container["args"] = ["run", *resized_v0.FLAGS, resized_v0.MANY]
    story = resized_v0.LoggedStory(job, lambda count: print(scale(cluster, name, count)), lambda: events(job))
    story.cut_shards()
    apply(cluster, *objects)
    story.play()
    kubectl("-n", cluster.namespace, "delete", f"{kind.lower()}/{name}", "--timeout=60s")
    passes = story.assert_each_line_once_per_pass()
    right = story.right(job / "output" / f"pass-{passes - 1:05d}")
    fixed = story.right_of_fixed_size(tmp_path / "fixed", passes)
    print(f"{kind}, v0: {passes} passes, {story.seconds}, right {right}, with a fixed size {fixed}")
    assert right == pytest.approx(fixed, abs=resized_v0.TOLERANCE)


def test_a_paddle_job_with_servers_of_their_own_grows_and_shrinks(cluster: Cluster, tmp_path: Path) -> None:
    """The trainers are elastic, the servers are not. Without a volume, training begins again at each change."""
    (tmp_path / "job.yaml").write_text(_WITH_SERVERS.replace("IMAGE", cluster.image))
    words = ["submit", "-n", cluster.namespace, "--no-inject", str(tmp_path / "job.yaml")]
    subprocess.run([sys.executable, "-m", "launcher", *words], check=True, timeout=60)
    pods = "paddle-launcher/job=words"
    until(lambda: sizes_seen(cluster, 3) == {2}, lambda: cluster.logs(pods))
    assert "1 pod more: it joins at once, and training begins again" in scale(cluster, "words", 3)
    until(lambda: sizes_seen(cluster, 4) == {3}, lambda: cluster.logs(pods))
    assert "1 pod fewer: the others continue without it" in scale(cluster, "words", 2)
    until(lambda: sizes_seen(cluster, 3) == {2}, lambda: cluster.logs(pods))


_WITH_SERVERS = """
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata: {name: words}
spec:
  elastic: 1
  withGloo: 1  # then workers do not wait until the server listens
  ps:
    replicas: 1
    template: &template
      spec:
        containers:
          - name: words
            image: IMAGE
            env: [{name: LAUNCHER_SETTLE, value: "5"}]
            command: [sh, -c, 'echo "has $PADDLE_TRAINERS_NUM trainers"; sleep 3000']
  worker: {replicas: 2, requests: 1, limits: 4, template: *template}
"""


def sizes_seen(cluster: Cluster, pods: int) -> set[int]:
    """Return the numbers of trainers that the programs of so many pods have seen last, or nothing for other pods."""
    found = [pod for pod in cluster.pods("paddle-launcher/job=words") if not pod["metadata"].get("deletionTimestamp")]
    last = [re.findall(r"has (\d+) trainers", cluster.log(pod["metadata"]["name"]))[-1:] for pod in found]
    return {int(size) for sizes in last for size in sizes} if len(last) == pods and all(last) else set()


def python_of(packages: Path) -> str:
    """Return the Python to which these packages belong."""
    return str(packages.parents[2] / "bin" / "python")


def events(job: Path) -> str:
    path = job / "output" / "events.jsonl"
    return path.read_text()[-5000:] if path.exists() else "no events"
