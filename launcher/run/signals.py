"""Handle the signals of a launcher: requests to stop or to kill all processes, and signals for the processes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from launcher.base.spawn import watch_children

T = TypeVar("T")

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH)


class Signals:
    """Handle signals, once `watch` has been called. SIGTERM, SIGINT and SIGHUP have the same meaning.

    stop_requested: done once a signal has arrived
    kill_requested: done once a second signal has arrived
    on_stop: called at the first signal
    on_kill: called at each further signal
    on_forwarded: called with each signal that is meant for the processes, such as SIGUSR1
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stop_requested: asyncio.Future[None] = loop.create_future()
        self.kill_requested: asyncio.Future[None] = loop.create_future()
        self.on_stop: Callable[[], None] = lambda: None
        self.on_kill: Callable[[], None] = lambda: None
        self.on_forwarded: Callable[[int], None] = lambda number: None
        self._stop_requested_at = 0.0

    def watch(self, received: Sequence[int]) -> None:
        """Start to handle signals. Signals that arrived before this call count, too.

        received: the signals that arrived before this call
        """
        loop = asyncio.get_running_loop()
        watch_children()
        for number in STOPS:
            loop.add_signal_handler(number, self._on_signal)
        for number in FORWARDED:
            loop.add_signal_handler(number, lambda number: self.on_forwarded(number), number)
        for _ in list(received):
            self._on_signal()

    async def unless_stopped(self, work: Awaitable[T]) -> T | None:
        """Return the result of the work, or None if the first signal arrives earlier."""
        working = asyncio.ensure_future(work)
        either: list[asyncio.Future[Any]] = [working, self.stop_requested]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()  # also if the caller is cancelled

    def grace_left(self, grace: float) -> float:
        """Return how many of the `grace` seconds after the first signal are left."""
        return max(self._stop_requested_at + grace - time.monotonic(), 0)

    def _on_signal(self) -> None:
        if not self.stop_requested.done():
            self.stop_requested.set_result(None)
            self._stop_requested_at = time.monotonic()
            self.on_stop()
            return
        if not self.kill_requested.done():
            self.kill_requested.set_result(None)
        self.on_kill()
