"""On the hub of an elastic gang: agree on a step after which all trainers save and end, before the size changes.

    hold     all members: trainers wait at their next call of `launcher.train.should_stop`
    reached  each member: the step that its trainers have reached. A trainer makes at most one call more
    until    all members: the step after which all trainers end. It is higher than each step that one can have left

So no trainer needs another one in order to reach that step, and none has left it when it learns of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from launcher.gang import messages
from launcher.gang.events import GangSettings
from launcher.gang.protocol import Message
from launcher.gang.seats import Seat, Seats
from launcher.model import Cause

_AHEAD = 2  # one call that is not held any more, and one that has not seen the hold yet


class AgreedStep:
    """The agreement of one attempt. There is at most one per attempt.

    broadcast: sends a message to all members
    """

    def __init__(
        self, attempt: int, settings: GangSettings, seats: Seats, broadcast: Callable[[Message], None]
    ) -> None:
        self._attempt = attempt
        self._settings = settings
        self._seats = seats
        self._broadcast = broadcast
        self._steps: dict[int, int] = {}  # by rank
        self._answer: asyncio.Future[bool] | None = None
        self._until: int | None = None
        self.cause: Cause | None = None  # why all trainers end; None: they do not

    def messages(self) -> list[Message]:
        """Return the messages that tell a reconnected member the state of the agreement."""
        if self._answer is None:
            return []
        hold = messages.of_attempt("hold", self._attempt)
        return [hold] if self._until is None else [hold, messages.until(self._attempt, self._until)]

    async def agree(self, cause: Cause) -> bool:
        """Ask all members once, and return whether all trainers end after the same step, because of the first cause."""
        if self._answer is None:
            loop = asyncio.get_running_loop()
            self._answer = loop.create_future()
            self._broadcast(messages.of_attempt("hold", self._attempt))
            loop.call_later(self._settings.agreed_within, self._refuse)
        agreed = await asyncio.shield(self._answer)
        if agreed and self.cause is None:
            self.cause = cause
        return agreed

    def on_reached(self, seat: Seat, message: Message) -> None:
        step = messages.read_reached(message)
        if self._answer is None or self._answer.done() or not seat.member.trainers:
            return
        if not step:
            self._refuse()
            return
        self._steps[seat.rank] = step
        if len(self._steps) == sum(bool(each.member.trainers) for each in self._seats):
            self._let_go(max(self._steps.values()) + _AHEAD)

    def _refuse(self) -> None:
        self._let_go(0)

    def _let_go(self, until: int) -> None:
        assert self._answer is not None
        if not self._answer.done():
            self._until = until
            self._broadcast(messages.until(self._attempt, until))
            self._answer.set_result(until > 0)
