"""Ask all members, from the hub, what their processes do, and collect the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field

from launcher.gang import messages
from launcher.gang.protocol import Message
from launcher.model import MemberReport

Answers = Mapping[int, MemberReport]


@dataclass(eq=False)
class _Survey:
    """One survey. `done` is called with the answers, once all members have answered or the time is over."""

    to_file: bool
    done: Callable[[Answers], None]
    timer: asyncio.TimerHandle
    answers: dict[int, MemberReport] = field(default_factory=dict)


class Surveys:
    """All surveys that wait for answers. Several surveys may wait at the same time.

    seats: the seats of all members
    broadcast: sends a message to all members
    """

    def __init__(self, seats: Sized, broadcast: Callable[[Message], None]) -> None:
        self._seats = seats
        self._broadcast = broadcast
        self._begun = 0
        self._open: dict[int, _Survey] = {}

    def begin(self, within: float, done: Callable[[Answers], None], *, to_file: bool) -> int:
        """Ask all members, and return the number of the survey. Members that do not answer in time have no answer."""
        number, self._begun = self._begun, self._begun + 1
        timer = self._later(within, lambda: self._end(number))
        self._open[number] = _Survey(to_file, done, timer)
        self._broadcast(messages.collect(number, to_file))
        return number

    def drop(self, number: int) -> None:
        """Ignore all later answers of a survey. Its `done` is not called."""
        if survey := self._open.pop(number, None):
            survey.timer.cancel()

    def on_collected(self, rank: int, message: Message) -> None:
        number, report = messages.read_collected(message)
        if survey := self._open.get(number):
            survey.answers[rank] = report
            if len(survey.answers) == len(self._seats):
                self._end(number)

    def current_messages(self) -> list[Message]:
        """Return the messages that a reconnected member needs."""
        return [messages.collect(number, survey.to_file) for number, survey in self._open.items()]

    def close(self) -> None:
        """End all surveys with the answers that have arrived."""
        for number in list(self._open):
            self._end(number)

    def _later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call)

    def _end(self, number: int) -> None:
        survey = self._open[number]
        self.drop(number)
        survey.done(survey.answers)
