"""Jobs whose number of pods changes while they train, by the commands of docs/elastic.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, rendered
from tests.support.paths import K8S

_CHANGES = {
    "CONF_PADDLE_GRADIENT_NUM": "1:3",
    "LAUNCHER_MAX_RESTARTS": "3",
    "LAUNCHER_SETTLE": "5",
}


class ElasticJob:
    """A job of k8s/ with two of one to three pods. Its trainers wait before the passes 2, 3 and 4."""

    def __init__(self, cluster: Cluster, volume: Path, folder: str, kind: str, name: str) -> None:
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
