"""The hub's clock of progress: how long no trainer of the job has printed anything, and the way to that verdict."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from launcher.errors import Exit
from launcher.gang import protocol
from launcher.gang.events import REPORTS, GangSettings
from launcher.gang.protocol import Message
from launcher.model import Cause

_MOST_NAMED = 8


class Stall:
    """`tell` says something to all members, `stalled` gets the cause once all have collected their evidence."""

    def __init__(
        self, settings: GangSettings, tell: Callable[[Message], None], stalled: Callable[[Cause], None]
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._stalled = stalled
        self._turn: int | None = None  # that is watched
        self._heard_at = 0.0
        self._last: tuple[int, str] | None = None  # rank and line
        self._quiet: float | None = None  # for how long; None as long as nobody collects
        self._collected: dict[int, tuple[int, bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, turn: int) -> None:
        """All trainers of this turn may start."""
        self.end()
        if self._settings.stall:
            self._turn, self._heard_at, self._last, self._quiet, self._collected = (
                turn,
                time.monotonic(),
                None,
                None,
                {},
            )
            self._look()

    def end(self) -> None:
        """All have trained, or this turn is over for another reason."""
        self._turn = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def heard(self, rank: int, message: Message) -> None:
        """A member's trainer has printed something."""
        age, line = protocol.read_progress(message)
        at = time.monotonic() - age
        if protocol.read_turn(message) == self._turn and at >= self._heard_at:
            self._heard_at, self._last = at, (rank, line)

    def collected(self, rank: int, message: Message) -> None:
        """A member has written its evidence down, or could not."""
        if protocol.read_turn(message) != self._turn or self._quiet is None:
            return
        self._collected[rank] = protocol.read_collected(message)
        if len(self._collected) == self._settings.size:
            self._judge()

    def where(self) -> Message | None:
        """What a member that returns has missed."""
        return None if self._turn is None or self._quiet is None else protocol.of_turn("collect", self._turn)

    def _look(self, *, late: bool = False) -> None:
        """Twice: what was printed in time is told later, and may not be read yet if this very process was stopped."""
        left = self._heard_at + self._settings.stall - time.monotonic()
        if left > 0:
            self._later(left, self._look)
        elif not late:
            self._later(self._settings.stall / REPORTS, lambda: self._look(late=True))
        else:
            self._collect()

    def _collect(self) -> None:
        assert self._turn is not None
        self._quiet = time.monotonic() - self._heard_at
        self._later(self._settings.evidence_within, self._judge)
        self._tell(protocol.of_turn("collect", self._turn))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _judge(self) -> None:
        what = (
            f"the job is stalled: no trainer has printed anything for {self._quiet:.0f} s (LAUNCHER_STALL_TIMEOUT="
            f"{self._settings.stall:g}); {self._last_words()}; {self._counts()}"
        )
        self.end()
        self._stalled(Cause("stalled", None, "", what, Exit.STALLED))

    def _last_words(self) -> str:
        if self._last is None:
            return "none has since training began"
        rank, line = self._last
        return f"the last line was of {self._settings.shape.name(rank)}: {line!r}"

    def _counts(self) -> str:
        """Who has how many processes, as far as it fits."""
        shape, alike = self._settings.shape, defaultdict[str, list[int]](list)
        for rank in range(self._settings.size):
            alike[self._count(rank)].append(rank)
        if len(alike) == 1:
            return f"each member {next(iter(alike))}"
        parts = [f"{_few(ranks, shape.names)} {words}" for words, ranks in alike.items()]
        return ", ".join(parts[:_MOST_NAMED])

    def _count(self, rank: int) -> str:
        count, written = self._collected.get(rank, (None, False))
        if count is None:
            return "has told nothing of its processes"
        return f"has {count} process{'' if count == 1 else 'es'}{'' if written else ' and could not write them down'}"


def _few(ranks: list[int], names: Callable[[list[int]], str]) -> str:
    more = len(ranks) - _MOST_NAMED
    return names(ranks[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
