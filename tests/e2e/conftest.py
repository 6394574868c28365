"""What the tests on a cluster start from."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import table
from tests.e2e.cluster import Cluster, kubectl, namespace
from tests.e2e.manifests import apply, claimed, pod_security
from tests.e2e.training import Training
from tests.support.jobs import make_volume


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    assert os.environ.get("KUBECONFIG"), "KUBECONFIG must name a cluster's configuration"
    assert os.environ.get("E2E_IMAGE"), "E2E_IMAGE must name an image with this package that the cluster's nodes have"
    with namespace() as made:
        yield made


@pytest.fixture
def training(cluster: Cluster, tmp_path: Path) -> Training:
    name = "paddle-cluster-job"
    volume = make_volume(tmp_path)
    (volume / "quick-start").rename(volume / name)
    return Training(cluster, name, volume)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A volume that pods of any user can write to, with shards for a job that is still to be named."""
    made = make_volume(tmp_path, lines=300)
    subprocess.run(["chmod", "-R", "a+rwX", tmp_path, *tmp_path.parents[:2]], check=True)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def claim(cluster: Cluster, volume: Path) -> Iterator[Path]:
    """The volume as the claim `paddle` that our manifests name, in a namespace that takes no pod with privileges."""
    pod_security(cluster, "restricted")
    apply(cluster, *claimed(volume, cluster.namespace))
    yield volume
    kubectl("delete", "pv", cluster.namespace, "--wait=false")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of cases; also into the file that E2E_TABLE names."""
    found = table.rows(terminalreporter.stats)
    for case, result, seconds in found:
        terminalreporter.write_line(f"{result:8} {seconds:6.1f} s  {case}")
    if found and os.environ.get("E2E_TABLE"):
        Path(os.environ["E2E_TABLE"]).write_text(table.page(found))
