"""A fake cluster, which KUBECONFIG points to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_cluster import FakeCluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    fake = FakeCluster(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    yield fake
    fake.close()
