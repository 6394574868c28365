"""What several tests start from."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import Job, fresh, make_volume
from tests.support.nodes import Nodes

# nohup, or `&` in a script, leaves these ignored, and all that tests start would inherit it.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the slow tests first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def data_volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume with the shards of three trainers. Not to be written to."""
    return make_volume(tmp_path_factory.mktemp("data"))


@pytest.fixture
def three_nodes() -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        yield nodes


@pytest.fixture
def job(three_nodes: Nodes, data_volume: Path, tmp_path: Path) -> Job:
    """A job of three members on a volume of its own."""
    return Job(three_nodes, fresh(data_volume, tmp_path), tmp_path)
