"""Manifests, as users apply them: those of the seeds but for image and volume, and our own in k8s/."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.gangs import make_volume

SEEDS = Path(__file__).parent / "seeds"
K8S = Path(__file__).parent.parent.parent / "k8s"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A volume that pods of any user can write to, with shards for a job that is still to be named."""
    made = make_volume(tmp_path, lines=300)
    subprocess.run(["chmod", "-R", "a+rwX", tmp_path, *tmp_path.parents[:2]], check=True)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def succeeded(cluster: Cluster, job: str) -> bool:
    status = json.loads(kubectl("-n", cluster.namespace, "get", "job", job, "-o", "json"))["status"]
    return any(condition["type"] == "Complete" for condition in status.get("conditions", []))


def until_complete(cluster: Cluster, job: str) -> None:
    def logs() -> str:
        return "\n".join(cluster.log(pod["metadata"]["name"])[-3000:] for pod in cluster.pods(f"job-name={job}"))

    until(lambda: succeeded(cluster, job), logs)


def apply(cluster: Cluster, *objects: Json) -> None:
    kubectl("-n", cluster.namespace, "apply", "-f", "-", given={"kind": "List", "apiVersion": "v1", "items": objects})


def seed(name: str, image: str, volume: Path) -> Json:
    """A manifest of the seeds, word for word but for image and volume."""
    manifest: Json = yaml.safe_load((SEEDS / name).read_text().replace("[YOUR_REPO]/paddle:mypaddle", image))
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": given["name"], "hostPath": {"path": str(volume)}} for given in spec["volumes"]]
    for container in spec["containers"]:
        container.update(image=image, imagePullPolicy="IfNotPresent")
    return manifest


def test_the_manifest_of_seed_001_runs_unchanged_but_for_image_and_volume(cluster: Cluster, volume: Path) -> None:
    job = volume / "paddle-cluster-job"
    (volume / "quick-start").rename(job)
    (job / "quick_start").rename(job / "recommendation")
    (job / "recommendation" / "trainer_config.lr.py").rename(job / "recommendation" / "trainer_config.py")
    manifest = seed("job-001.yaml", cluster.image, volume)
    variables = {entry["name"]: entry for entry in manifest["spec"]["template"]["spec"]["containers"][0]["env"]}
    variables["JOB_NAMESPACE"]["value"] = cluster.namespace  # the seed runs in `default`, this test in its own
    apply(cluster, manifest)
    until_complete(cluster, "paddle-cluster-job")
    assert len(list((job / "output").glob("pass-*/done"))) == 10
    for rank in range(3):
        assert (job / "output" / f"node_{rank}" / "server.log").stat().st_size
        assert (job / "output" / f"node_{rank}" / "train.log").stat().st_size


def test_the_data_job_of_seed_001_makes_shards_on_the_volume(cluster: Cluster, tmp_path: Path) -> None:
    manifest = seed("data-001.yaml", os.environ["E2E_DATA_IMAGE"], tmp_path)
    mount = manifest["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]
    mount["mountPath"] = "/home/work/mfs"  # the seed mounts /mnt, so that its shards would be gone with the pod
    apply(cluster, manifest)
    until_complete(cluster, "paddle-data")
    made = tmp_path / "paddle-cluster-job"
    assert sorted(path.name for path in made.iterdir() if not path.name.startswith(".")) == [
        "0", "1", "2", "output", "quick_start"
    ]  # fmt: skip


def kustomized(name: str, cluster: Cluster, volume: Path) -> list[Json]:
    """One of our manifests with this image, and the volume as the claim that it names."""
    rendered = subprocess.run(["kubectl", "kustomize", K8S / name], capture_output=True, text=True, check=True).stdout
    objects: list[Json] = list(yaml.safe_load_all(rendered.replace("paddle-launcher:latest", cluster.image)))
    claim = f"{cluster.namespace}-{name}"
    size = {"storage": "1Gi"}
    access = ["ReadWriteMany"]
    objects.append(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": claim},
            "spec": {
                "capacity": size,
                "accessModes": access,
                "storageClassName": "",
                "claimRef": {"namespace": cluster.namespace, "name": "paddle"},
                "hostPath": {"path": str(volume)},
            },
        }
    )
    objects.append(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "paddle"},
            "spec": {
                "accessModes": access,
                "storageClassName": "",
                "resources": {"requests": size},
                "volumeName": claim,
            },
        }
    )
    return objects


@pytest.mark.parametrize(("name", "job"), [("job", "paddle-cluster-job"), ("job-indexed", "paddle-indexed-job")])
def test_our_manifests_train_as_a_user_without_rights(cluster: Cluster, volume: Path, name: str, job: str) -> None:
    (volume / "quick-start").rename(volume / job)
    kubectl("-n", cluster.namespace, "delete", "job", job, "--ignore-not-found")
    objects = kustomized(name, cluster, volume)
    apply(cluster, *objects)
    try:
        until_complete(cluster, job)
        assert len(list((volume / job / "output").glob("pass-*/done"))) == 10
        owners = {path.stat().st_uid for path in (volume / job / "output").glob("node_*/status.json")}
        assert owners == {10001}
    finally:
        kubectl("-n", cluster.namespace, "delete", "job", job, "--ignore-not-found")
        kubectl("-n", cluster.namespace, "delete", "pvc", "paddle", "--wait=false")
        kubectl("delete", "pv", f"{cluster.namespace}-{name}", "--wait=false")
