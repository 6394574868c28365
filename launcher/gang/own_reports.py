"""What one member reports to its hub, and repeats after each reconnect."""

from __future__ import annotations

import time
from collections.abc import Callable

from launcher.gang import messages
from launcher.gang.protocol import Message
from launcher.model import Cause


class OwnReports:
    """The reports of one member about the current attempt, or about all attempts.

    A report is sent at once, or after the join. Each report is kept as a function that makes the message, since a
    message contains the age of the report.

    send: sends a message to the hub
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self.joined = False
        self.attempt = 0
        self.trained = False
        self.failures: list[tuple[float, Cause]] = []  # time (monotonic) and cause
        self._kept: list[tuple[int | None, Callable[[], Message]]] = []  # attempt, or None for all attempts
        self._latest: dict[str, Callable[[], Message]] = {}  # by word: the reports of which only the latest counts

    def add(self, make: Callable[[], Message], attempt: int | None = None) -> None:
        """Send a report now, or after the join. Drop a report about an earlier attempt."""
        if attempt not in (None, self.attempt):
            return
        self._kept.append((attempt, make))
        if self.joined:
            self._send(make())

    def replace(self, word: str, make: Callable[[], Message]) -> None:
        """Send a report about the current attempt, and drop the previous report of this kind."""
        before = self._latest.get(word)
        self._kept = [(of, kept) for of, kept in self._kept if kept is not before]
        self._latest[word] = make
        self.add(make, self.attempt)

    def add_failure(self, cause: Cause, died_at: float, attempt: int | None) -> None:
        self.failures.append((died_at, cause))
        self.add(lambda: self._failed(cause, died_at), attempt)

    def repeat(self) -> None:
        """Send all reports again. The hub ignores a report that it has received before."""
        for _, make in list(self._kept):
            self._send(make())

    def next_attempt(self, attempt: int) -> None:
        """Drop all reports about the previous attempt, except failures that no restart can repair."""
        self.attempt = attempt
        self.trained = False
        self._kept = [(of, make) for of, make in self._kept if of is None]
        self.failures = [(at, cause) for at, cause in self.failures if not cause.kind.restartable]

    def failed_messages(self) -> list[Message]:
        return [self._failed(cause, at) for at, cause in self.failures]

    def repeat_failures(self) -> None:
        for message in self.failed_messages():
            self._send(message)

    def _failed(self, cause: Cause, died_at: float) -> Message:
        return messages.failed(self.attempt, cause, time.monotonic() - died_at)
