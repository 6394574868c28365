"""Helpers for tests that apply manifests: render them with the images of the tests, and read the results."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from launcher import __version__
from tests.e2e.cluster import Cluster, Json, kubectl
from tests.support.paths import K8S

QUICK_START = K8S.parent / "examples" / "quick_start"
IMAGE_PYTHON = "python3.11"  # the version in the pods' image, since compiled packages need the same version


def apply(cluster: Cluster, *objects: Json) -> None:
    kubectl("-n", cluster.namespace, "apply", "-f", "-", given={"kind": "List", "apiVersion": "v1", "items": objects})


def pod_security(cluster: Cluster, level: str) -> None:
    """Set the Pod Security level of the namespace: `restricted`, or `privileged` to allow all pods."""
    label = f"pod-security.kubernetes.io/enforce={level}"
    kubectl("label", "--overwrite", "namespace", cluster.namespace, label)


def kustomized(folder: Path) -> str:
    """Return the YAML that kustomize renders from a folder. Needs kubectl, but no cluster."""
    return subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout


def rendered(folder: Path, cluster: Cluster) -> list[Json]:
    """Return the objects that kustomize renders from a folder, with the images of these tests."""
    text = kustomized(folder)
    text = text.replace(f"paddle-launcher-data:{__version__}", os.environ["E2E_DATA_IMAGE"])
    return list(yaml.safe_load_all(text.replace(f"paddle-launcher:{__version__}", cluster.image)))


def overlay(folder: Path, name: str, *options: str) -> Path:
    """Write an overlay of one of our jobs with options to `folder`, as a user does."""

    def beside(path: Path) -> str:
        return os.path.relpath(path, folder.resolve())

    folders = [K8S / "options" / option for option in options]
    of_job = [path if (path / "kustomization.yaml").exists() else path / name for path in folders]
    made = {"resources": [beside(K8S / name)], "components": [beside(path) for path in of_job]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made))
    return folder


def for_one_trainer(job: Path) -> None:
    """Remove all shards but the first: the data set of the tests is for three trainers."""
    for number in ("1", "2"):
        shutil.rmtree(job / number)


def claimed(folder: Path, namespace: str) -> tuple[Json, Json]:
    """Return a volume and the claim `paddle` for a folder of this host, which all nodes share."""
    size, access = {"storage": "1Gi"}, ["ReadWriteMany"]
    shared = {"accessModes": access, "storageClassName": ""}
    owner = {"namespace": namespace, "name": "paddle"}
    source = {"capacity": size, "claimRef": owner, "hostPath": {"path": str(folder)}}
    wanted = {"resources": {"requests": size}, "volumeName": namespace}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": shared | source},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "paddle"}, "spec": shared | wanted},
    )


def packages_of(variable: str) -> Path:
    """Return the folder that the variable names. Skip the test if there is no such folder for pods."""
    packages = Path(os.environ.get(variable, ""))
    if packages == Path():
        pytest.skip(f"{variable} is not set: it names the site-packages folder of a Python that has Paddle")
    if packages.parent.name != IMAGE_PYTHON:
        pytest.skip(f"{variable}: {packages} is of another Python than the pods' {IMAGE_PYTHON}")
    assert (packages / "paddle").is_dir(), f"{variable}: no Paddle in {packages}"
    return packages


def passes(job: Path) -> int:
    return len(list((job / "output").glob("pass-*/done")))
