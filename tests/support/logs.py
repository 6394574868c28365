"""What the launcher's code logs, for helpers of tests and the programs that they start. A test itself uses caplog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from launcher.base.log import TextHandler, shown_by


@contextmanager
def logged() -> Iterator[list[str]]:
    """The messages so far, as people read them."""
    messages: list[str] = []
    with shown_by(TextHandler(messages.append)):
        yield messages
