"""What applying manifests in a test takes: our own rendered with the images of the tests, and what they leave."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster, Json, kubectl
from tests.support.paths import K8S

QUICK_START = K8S.parent / "examples" / "quick_start"
IMAGE_PYTHON = "python3.11"  # of the pods' image; compiled packages fit no other


def apply(cluster: Cluster, *objects: Json) -> None:
    kubectl("-n", cluster.namespace, "apply", "-f", "-", given={"kind": "List", "apiVersion": "v1", "items": objects})


def pod_security(cluster: Cluster, level: str) -> None:
    """Which pods the namespace takes: `restricted`, or `privileged`, which is all of them."""
    label = f"pod-security.kubernetes.io/enforce={level}"
    kubectl("label", "--overwrite", "namespace", cluster.namespace, label)


def rendered(folder: Path, cluster: Cluster) -> list[Json]:
    """What kustomize makes of a folder, with the images of these tests."""
    text = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    text = text.replace("paddle-launcher-data:latest", os.environ["E2E_DATA_IMAGE"])
    return list(yaml.safe_load_all(text.replace("paddle-launcher:latest", cluster.image)))


def overlay(folder: Path, name: str, *options: str) -> Path:
    """In `folder`, as a user would write it: one of our jobs with options."""

    def beside(path: Path) -> str:
        return os.path.relpath(path, folder.resolve())

    made = {"resources": [beside(K8S / name)], "components": [beside(K8S / "options" / option) for option in options]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made))
    return folder


def claimed(folder: Path, namespace: str) -> tuple[Json, Json]:
    """A folder of this host, which the nodes share, as the claim `paddle` of a namespace: volume and claim."""
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
    """The folder that the variable names, where there is one that the pods can use."""
    packages = Path(os.environ.get(variable, ""))
    if packages == Path():
        pytest.skip(f"{variable} is not set: it names the site-packages folder of a Python that has Paddle")
    if packages.parent.name != IMAGE_PYTHON:
        pytest.skip(f"{variable}: {packages} is of another Python than the pods' {IMAGE_PYTHON}")
    assert (packages / "paddle").is_dir(), f"{variable}: no Paddle in {packages}"
    return packages


def passes(job: Path) -> int:
    return len(list((job / "output").glob("pass-*/done")))
