"""Where one source of events is heard."""

from __future__ import annotations

import asyncio


class EventSource:
    """Call it with an event. What comes after `close`, or is still queued by then, is forgotten."""

    def __init__(self, queue: asyncio.Queue[tuple[EventSource, object]]) -> None:
        self._queue = queue
        self.closed = False

    def __call__(self, event: object) -> None:
        self._queue.put_nowait((self, event))

    def later(self, seconds: float, event: object) -> None:
        """The same after a time."""
        asyncio.get_running_loop().call_later(seconds, self, event)

    def close(self) -> None:
        self.closed = True
