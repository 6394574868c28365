"""Collect the launcher's log messages in test helpers and their programs. Tests themselves use caplog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from launcher.base.log import TextHandler, shown_by


@contextmanager
def logged() -> Iterator[list[str]]:
    """Yield the list of messages, which grows while the context is open."""
    messages: list[str] = []
    with shown_by(TextHandler(messages.append)):
        yield messages
