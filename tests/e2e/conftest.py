"""Fixtures for the tests on a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import sharing, table
from tests.e2e.cluster import Cluster, kubectl, namespace
from tests.e2e.manifests import apply, claimed, pod_security
from tests.e2e.pods import keep_objects, release_objects
from tests.e2e.seats import Seat, nodes
from tests.e2e.training import Change, Training
from tests.support.jobs import make_volume

_HERE = Path(__file__).parent
_BEGAN = time.monotonic()
_TIMEOUT = 600  # seconds for a test without its own timeout; several tests share the machine


def pytest_configure(config: pytest.Config) -> None:
    for marker in sharing.MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that run alone last, so that no other test waits for them."""
    items.sort(key=lambda item: item.get_closest_marker("alone") is not None)
    for item in items:
        if _HERE in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Wait until the test may run, before its timeout starts."""
    with sharing.turn(item):
        return (yield)


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
    """Yield a volume to which pods of any user can write, with shards for a job without a name yet."""
    made = make_volume(tmp_path, lines=300)
    subprocess.run(["chmod", "-R", "a+rwX", made], check=True)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def claim(cluster: Cluster, volume: Path) -> Iterator[Path]:
    """Yield the volume as the claim `paddle` of our manifests, in a namespace that allows no privileged pods."""
    pod_security(cluster, "restricted")
    apply(cluster, *claimed(volume, cluster.namespace))
    yield volume
    kubectl("delete", "pv", cluster.namespace, "--wait=false")


@pytest.fixture
def volcano() -> None:
    """Skip the test on a cluster without Volcano, except with E2E_VOLCANO=1."""
    command = ["kubectl", "get", "queues.scheduling.volcano.sh", "default"]
    if subprocess.run(command, capture_output=True, timeout=60).returncode:
        assert not os.environ.get("E2E_VOLCANO"), "E2E_VOLCANO is set, but this cluster has no Volcano"
        pytest.skip("this cluster has no Volcano")


@pytest.fixture
def seat(cluster: Cluster) -> Iterator[Seat]:
    """Yield a resource of this test only. Each node has one, like a node with one GPU."""
    made = Seat(f"example.test/{cluster.namespace}")
    made.offer(1, *nodes())
    yield made
    made.offer(None, *nodes())


@pytest.fixture
def kept(cluster: Cluster) -> Iterator[Change]:
    """Yield a change of a Job that keeps the objects of ended pods, so that the launcher can still read them."""
    yield keep_objects
    release_objects(cluster)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of cases, and write it to the file that E2E_TABLE names."""
    found = table.rows(terminalreporter.stats)
    for case, result, seconds in found:
        terminalreporter.write_line(f"{result:8} {seconds:6.1f} s  {case}")
    if found and os.environ.get("E2E_TABLE"):
        workers = getattr(terminalreporter.config.option, "numprocesses", None) or 1
        Path(os.environ["E2E_TABLE"]).write_text(table.page(found, time.monotonic() - _BEGAN, workers))
