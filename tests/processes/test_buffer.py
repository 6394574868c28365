"""The buffer between a process's output and its readers."""

from __future__ import annotations

import threading
import time

import pytest

from launcher.processes.buffer import CHUNK, Buffer

MEBIBYTE = 1024 * 1024


class Events:
    """The events of `reserve`, neither of which is set."""

    stop, dead = threading.Event(), threading.Event()


class AtDeath(Events):
    """The child is dead, and its pipes may hold 2 MiB: read at once, they would need more memory than before."""

    dead = threading.Event()
    dead.set()


class Waits(Exception):
    """The writer waits for a reader."""


@pytest.mark.parametrize("events", [Events, AtDeath])
def test_output_after_a_long_silence_waits_for_its_readers_too(
    monkeypatch: pytest.MonkeyPatch, events: type[Events]
) -> None:
    """Readers that had nothing to take were not stuck. Otherwise each burst would fill the whole memory."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    buffer = Buffer(16 * MEBIBYTE, spare=MEBIBYTE)
    buffer.cursor()

    def wait_for(is_met: object, seconds: float | None = None) -> bool:
        assert callable(is_met)
        if not is_met():
            raise Waits
        return True

    monkeypatch.setattr(buffer._changed, "wait_for", wait_for)
    now = 60.0

    def write() -> None:
        for _ in range(16):
            memory = buffer.reserve(events.stop, events.dead)
            assert memory is not None
            buffer.commit(len(memory))

    with pytest.raises(Waits):
        write()
    assert buffer.size() == MEBIBYTE * 3 // 4
    now += 1.0  # no reader takes bytes: the writer may use all of the memory
    while buffer.size() < 15 * MEBIBYTE:
        assert buffer.reserve(events.stop, events.dead) is not None
        buffer.commit(CHUNK)
