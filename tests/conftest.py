"""What several tests start from."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.fake_api import Authority
from tests.support.fake_cluster import FakeCluster
from tests.support.jobs import Job, fresh, make_volume
from tests.support.nodes import Nodes

_SHARED = {"browser", "registry", "private", "public"}  # fixtures that start a process for all tests of their file

# nohup, or `&` in a script, leaves these ignored, and all that tests start would inherit it.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# `python3` of the stand-ins is this Python. The shim of a version manager runs dozens of shells first.
os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers of xdist use the same servers
        folder = tempfile.TemporaryDirectory(prefix="forks-")
        config.add_cleanup(folder.cleanup)
        forked.start_servers(Path(folder.name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix the tests of all folders, and begin the slow ones early: one after each 50 other tests.

    Some folders mostly wait, and others compute. Mixed, they keep the processors busy from the beginning to the end.
    Tests that share a process of their file stay together.
    """
    folders = Counter(item.path.parent for item in items)
    seen: Counter[Path] = Counter()
    place: dict[pytest.Item, float] = {}
    of_file: dict[Path, float] = {}
    for item in items:
        place[item] = seen[item.path.parent] / folders[item.path.parent]
        seen[item.path.parent] += 1
        if _SHARED & set(getattr(item, "fixturenames", ())):
            place[item] = of_file.setdefault(item.path, place[item])
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = sorted((item for item in items if not item.get_closest_marker("slow")), key=place.__getitem__)
    for number, item in enumerate(slow):
        others.insert(number * 51, item)
    items[:] = others


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over thousands of tests, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume with the shards of three trainers. Not to be written to."""
    return make_volume(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority for a stand-in of the API server."""
    return Authority(tmp_path_factory.mktemp("pki") / "good", "good")


@pytest.fixture
def three_nodes() -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        yield nodes


@pytest.fixture
def job(three_nodes: Nodes, data_volume: Path, tmp_path: Path) -> Job:
    """A job of three members on a volume of its own."""
    return Job(three_nodes, fresh(data_volume, tmp_path), tmp_path)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A fake cluster, which KUBECONFIG points to."""
    fake = FakeCluster(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    yield fake
    fake.close()
