"""One attempt: the processes of this member, from the start of the first process to the end of the last."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launcher.gang import Gang
from launcher.model import Process
from launcher.processes.guardian import Guardian
from launcher.run.event_source import EventSource
from launcher.run.factories import Factories
from launcher.run.stall import Watchdog
from launcher.run.start_order import StartOrder


@dataclass(frozen=True)
class TimerDue:
    """It is time for a delayed call."""

    call: Callable[[], None]


class Attempt:
    """One start of this member's processes. Events of a closed attempt are dropped."""

    def __init__(
        self,
        number: int,
        events: EventSource,
        gang: Gang,
        guardian: Guardian | None,
        factories: Factories,
        *,
        watched: bool,
    ) -> None:
        self.number = number
        self._events = events
        self.watchdog = Watchdog(number, gang, lambda: self.supervisor.last_line())
        self.supervisor = factories.supervisor(
            events, secrets.token_hex(8), guardian, on_output=self.watchdog.printed, with_stacks=watched
        )
        self.order = StartOrder(gang, number, self.supervisor.start, self.later)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._events.later(seconds, TimerDue(call))

    def close(self) -> None:
        """Start no further process, and drop all further events."""
        self.order.close()
        self.watchdog.close()
        self._events.close()

    async def end(self, grace: float, flush_within: float) -> Sequence[Process]:
        """End all processes. Return the processes that did not end after SIGKILL: they are blocked in the kernel."""
        self.close()
        left = await self.supervisor.end(grace)
        await self.supervisor.close(flush_within)
        return left
