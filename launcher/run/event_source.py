"""A closable producer for the event queue."""

from __future__ import annotations

import asyncio


class EventSource:
    """Call it with an event, to queue the event. After `close`, all its events are dropped, also the queued ones."""

    def __init__(self, queue: asyncio.Queue[tuple[EventSource, object]]) -> None:
        self._queue = queue
        self.is_closed = False

    def __call__(self, event: object) -> None:
        self._queue.put_nowait((self, event))

    def later(self, seconds: float, event: object) -> None:
        """Put the event into the queue after some seconds."""
        asyncio.get_running_loop().call_later(seconds, self, event)

    def close(self) -> None:
        self.is_closed = True
