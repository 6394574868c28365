"""Which tests may run at the same time: all except those whose markers name what they share with no other test."""

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
    """Hold what the test needs, also against the other workers."""
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
