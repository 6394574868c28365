"""The messages of the hub as events for one member: each at most once, in an order that can be relied on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from launcher.gang import messages
from launcher.gang.events import Begin, Collect, Event, Finish, Hold, HubLost, Lead, Restart, Stop, Train, Until
from launcher.gang.own_reports import OwnReports
from launcher.gang.protocol import Malformed, Message


class Decisions:
    """Deliver the hub's messages as events. The order of the events is described in `Gang`.

    on_event: takes each event, in a callback of its own
    on_restart: called when the next attempt begins, before its reports are sent
    leave: called as soon as this member needs nothing more from the hub
    """

    def __init__(
        self,
        on_event: Callable[[Event], None],
        reports: OwnReports,
        *,
        on_restart: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self._on_event = on_event
        self._reports = reports
        self._on_restart = on_restart
        self._leave = leave
        self._delivered: set[type[Event]] = set()
        self._surveyed = -1  # the number of the latest survey
        self.finished = asyncio.Event()
        self._finish_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_over(self) -> bool:
        """Whether the gang has stopped or finished."""
        return Stop in self._delivered or Finish in self._delivered

    @property
    def finishes_later(self) -> bool:
        """Whether the hub has sent finish with a delay."""
        return self._finish_timer is not None

    def handle(self, message: Message) -> None:
        match message["word"]:
            case "restart":
                self._restart(messages.read_restart(message))
            case "begin" | "lead" | "train" as word:
                if messages.read_attempt(message) == self._reports.attempt:
                    self._deliver(_event_of_attempt(word, message))
            case "hold" | "until" as word:
                if messages.read_attempt(message) == self._reports.attempt:
                    self._deliver(Hold() if word == "hold" else messages.read_until(message))
            case "collect":
                self._collect(messages.read_collect(message))
            case "stop":
                self.stop(messages.read_stop(message))
            case "finish":
                self.finish(messages.read_finish(message))
            case _:
                raise Malformed("unknown word")

    def handle_soon(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self.handle, message)

    def stop(self, stop: Stop) -> None:
        self._deliver(stop)
        if not stop.rejoin:  # else the hub must still say when no process of the gang can run any more
            self._leave()

    def finish(self, after: float = 0.0) -> None:
        """Deliver Finish after `after` seconds."""
        self._leave()
        if after > 0:
            self._finish_timer = asyncio.get_running_loop().call_later(after, self.finish)
            return
        self._deliver(Finish())
        self.finished.set()

    def lose_hub(self, lost: HubLost, run_time: float) -> None:
        """Deliver HubLost. `run_time`: seconds until no process of the gang can run any more."""
        self._deliver(lost)
        asyncio.get_running_loop().call_later(run_time, self.finished.set)

    def close(self) -> None:
        """After this call, no new event is delivered."""
        self._closed = True
        if self._finish_timer:
            self._finish_timer.cancel()

    def _restart(self, restart: Restart) -> None:
        """Enter the next attempt. Drop reports about the previous one, except failures that no restart can repair."""
        if restart.attempt <= self._reports.attempt or self.is_over:
            return
        self._delivered -= {Begin, Lead, Train, Restart, Hold, Until}
        self._reports.next_attempt(restart.attempt)
        self._deliver(restart)
        self._on_restart()

    def _collect(self, collect: Collect) -> None:
        """Deliver each survey once. A reconnected member receives surveys again."""
        if collect.survey > self._surveyed and not self._closed and not self.is_over:
            self._surveyed = collect.survey
            asyncio.get_running_loop().call_soon(self._on_event, collect)

    def _deliver(self, event: Event) -> None:
        """Deliver each kind of event at most once. After Stop, only Finish is delivered; after Finish, nothing."""
        kind = type(event)
        if self._closed or kind in self._delivered or (self.is_over and kind is not Finish):
            return
        self._delivered.add(kind)
        asyncio.get_running_loop().call_soon(self._on_event, event)


def _event_of_attempt(word: str, message: Message) -> Event:
    match word:
        case "begin":
            return messages.read_begin(message)
        case "train":
            return messages.read_train(message)
    return Lead()
