"""What the tests on a cluster start from."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, kubectl, rights
from tests.e2e.training import Training
from tests.gangs import make_volume


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    assert os.environ.get("KUBECONFIG"), "KUBECONFIG must name a cluster's configuration"
    assert os.environ.get("E2E_IMAGE"), "E2E_IMAGE must name an image with this package that the cluster's nodes have"
    made = Cluster(f"launcher-{uuid.uuid4().hex[:8]}", os.environ["E2E_IMAGE"])
    kubectl("create", "namespace", made.namespace)
    try:
        made.create(*rights(made.namespace))
        yield made
    finally:
        kubectl("delete", "namespace", made.namespace, "--wait=false")


@pytest.fixture
def training(cluster: Cluster, tmp_path: Path) -> Training:
    name = "paddle-cluster-job"
    volume = make_volume(tmp_path)
    (volume / "quick-start").rename(volume / name)
    return Training(cluster, name, volume)
