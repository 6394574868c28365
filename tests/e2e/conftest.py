"""What the tests on a cluster start from."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, kubectl, rights


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
