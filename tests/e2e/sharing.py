"""All tests may run at the same time, except tests whose markers name a resource that they need alone."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

MARKERS = (
    "alone: needs the whole cluster, or a machine that is not busy; runs after all others",
    "node_ports: takes ports 7164 to 7167 of the nodes; one such test runs at a time",
)


@contextmanager
def turn(item: pytest.Item) -> Iterator[None]:
    """Hold the resources of the test, also against the other test workers."""
    with ExitStack() as held:
        if item.get_closest_marker("node_ports"):
            held.enter_context(_locked("node-ports", fcntl.LOCK_EX))
        alone = item.get_closest_marker("alone")
        held.enter_context(_locked("cluster", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(name: str, how: int) -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / f"paddle-launcher-e2e-{name}.lock").open("w") as file:
        fcntl.flock(file, how)
        yield
