"""`Gang`: one launcher's part in its gang, whether it is the hub or a member."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping

from launcher.base.aio import bounded
from launcher.errors import Exit
from launcher.gang import protocol
from launcher.gang.connection import Connection
from launcher.gang.ending import END_WITHIN
from launcher.gang.events import (
    Begin,
    Collect,
    Credentials,
    Event,
    Finish,
    GangSettings,
    HubLost,
    Lead,
    LookAgain,
    Missing,
    Next,
    Restart,
    Stop,
    Train,
)
from launcher.gang.first_cause import first_cause, handicap
from launcher.gang.hub import Hub
from launcher.gang.link import Link, pause
from launcher.gang.listener import Listener
from launcher.gang.protocol import Malformed, Message
from launcher.gang.refusals import Refusal, RefusalLog
from launcher.model import AGAIN, Cause, Member, Roster, Start

_CLOSE_WITHIN = 0.9


class Gang:
    """Listen first, then join, then say what has happened here; `events` gets what follows for all.

    Every event comes on the loop, from a callback of its own. In each turn, at most once each: Begin; Lead, on the hub;
    Train; then perhaps Collect; then perhaps Restart, with which the next turn begins. At the end Finish, or Stop and
    later Finish, or HubLost. Events may come before `join` has returned to its caller. After a Stop the culprit
    (`cause.rank` is its own) says `stopped` and leaves; all others wait for Finish, which comes when it has gone. If
    the cause's kind is "stopped" the culprit may use all of its grace, and the waiting needs a bound of the caller's.
    After a Stop with `again` everybody says `stopped`, and Finish comes when all have, or must have ended by silence.

    complete: called on the hub, once, when all have trained: writes the mark of completion
    judge: called on the hub with the first cause of a turn: gives it as it is told to all, and what follows from it. It
        must not block.
    prepare: called on the hub before each turn with the cause of the one before: gives what is told by Begin, or raises
        NotAgain
    """

    def __init__(
        self,
        settings: GangSettings,
        events: Callable[[Event], None],
        *,
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], tuple[Cause, Next]],
        prepare: Callable[[Cause | None], Awaitable[Start]],
    ) -> None:
        self._settings = settings
        self._events = events
        self._complete = complete
        self._judge = judge
        self._prepare = prepare
        self._incarnation = os.urandom(8).hex()
        self._strangers = RefusalLog()
        self._door = Listener(settings, self._greet, self._strangers)
        self._next_try = 0.0
        self._hub: Hub | None = None
        self._link: Link | None = None
        self._missing: Missing | None = None
        self._roster: Roster | None = None
        self._rank = 0
        self.identity = ""  # once it is complete
        self._turn = 0
        # Of which turn (None: of any), and how it is said: made anew each time, since the age of a death grows.
        self._said: list[tuple[int | None, Callable[[], Message]]] = []
        self._progress: Callable[[], Message] | None = None  # the latest
        self._trained = False
        self._failures: list[tuple[float, Cause]] = []
        self._given: set[type[Event]] = set()
        self._verdict_timer: asyncio.TimerHandle | None = None
        self._finished = asyncio.Event()
        self._finishing: asyncio.TimerHandle | None = None
        self._closed = False

    # ---- joining -------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """From the first moment, before anybody knows who is the hub. Failure (CONFIG) when the port is taken."""
        if self._settings.size > 1:
            self._door.open()

    @property
    def port(self) -> int:
        """Where this launcher listens."""
        return self._door.port

    @property
    def refused(self) -> Mapping[str, int]:
        """How many connections were refused here, by reason."""
        return self._strangers.counts

    async def join(
        self, me: Member, hub: tuple[str, int] | None, *, job: str, secret: bytes | None
    ) -> tuple[Roster, int]:
        """The complete roster and the own rank in it. `hub` is its host and port, or None when it is this launcher.

        Raises LookAgain when the hub says so, cannot be reached, or is not this launcher: find peers and join again.
        """
        await asyncio.sleep(max(self._next_try - time.monotonic(), 0))
        self._next_try = time.monotonic() + pause()
        papers = Credentials(me, self._incarnation, job, secret)
        if hub is None:
            self._roster, self._rank, self.identity = await self._lead(papers)
        else:
            self._roster, self._rank, self.identity = await self._follow(papers, hub)
        self._say_all()
        return self._roster, self._rank

    async def _lead(self, papers: Credentials) -> tuple[Roster, int, str]:
        hub = self._hub = Hub(
            papers,
            self._settings,
            hear=self._heard_soon,
            complete=self._complete,
            judge=self._judge,
            prepare=self._prepare,
        )
        try:
            roster = await hub.roster()
        except BaseException as error:
            self._missing = hub.missing()
            self._hub = None
            hub.dissolve(error.reason if isinstance(error, LookAgain) else "the hub has left")
            raise
        return roster, hub.own.rank, hub.gang

    async def _follow(self, papers: Credentials, hub: tuple[str, int]) -> tuple[Roster, int, str]:
        link = self._link = Link(
            papers,
            self._settings,
            hub,
            heard=self._heard,
            returned=self._say_all,
            lost=self._hub_lost,
            last_words=lambda: [self._failed(cause, at) for at, cause in self._failures],
        )
        try:
            welcome = await link.join()
        except BaseException:
            self._missing = link.missing or self._missing
            self._link = None
            link.drop()
            raise
        return welcome.roster, welcome.rank, welcome.gang

    def missing(self) -> Missing | None:
        """Who is (or was last) waited for, as the hub knows it; None as long as it is not known here."""
        if self._hub:
            return self._hub.missing()
        return (self._link.missing if self._link else None) or self._missing

    def joined(self) -> list[str]:
        """The pods that have joined, as far as this launcher is the hub."""
        return self._hub.joined() if self._hub else []

    def _greet(self, connection: Connection, nonce: str, message: Message) -> None:
        if self._hub is None:
            protocol.version_of(message)
            raise Refusal("", "this launcher is not the hub, or does not know it yet", retry=True)
        self._hub.greet(connection, nonce, message)

    # ---- what this member says -----------------------------------------------------------------------------------

    def staged(self) -> None:
        """Configuration and shard are here."""
        self._say(lambda: protocol.word("staged"))

    def serving(self, turn: int = 0) -> None:
        """Every server of this member listens on all of its ports."""
        self._say(lambda: protocol.of_turn("serving", turn), turn)

    def progress(self, turn: int, printed_at: float, line: str) -> None:
        """A trainer of this member has printed something, at `printed_at` of time.monotonic() and last this line."""
        self._said = [(of, make) for of, make in self._said if make is not self._progress]
        self._progress = lambda: protocol.progress(turn, time.monotonic() - printed_at, line)
        self._say(self._progress, turn)

    def collected(self, turn: int, processes: int, written: bool) -> None:
        """After a collect: what so many processes of this member do is written down, or could not be."""
        self._say(lambda: protocol.collected(turn, processes, written), turn)

    def trained(self, turn: int = 0) -> None:
        """Every trainer of this member has ended with 0."""
        if turn == self._turn:
            self._trained = True
            self._say(lambda: protocol.of_turn("trained", turn), turn)

    def ended(self, turn: int) -> None:
        """After a restart: no child of an earlier turn is left here."""
        self._say(lambda: protocol.of_turn("ended", turn), turn)

    def failed(self, cause: Cause, died_at: float, turn: int | None = None) -> None:
        """Something that ends this turn, or any (None), happened here, at `died_at` of time.monotonic()."""
        if turn in (None, self._turn):
            self._failures.append((died_at, cause))
            self._say(lambda: self._failed(cause, died_at), turn)
            self._await_verdict()

    def stopped(self) -> None:
        """After a stop: the children of this member are ended."""
        self._say(lambda: protocol.word("stopped"))

    def _failed(self, cause: Cause, died_at: float) -> Message:
        return protocol.failed(self._turn, cause, time.monotonic() - died_at)

    def _say(self, make: Callable[[], Message], turn: int | None = None) -> None:
        """What was said of a turn that is over for the hub is said no more."""
        if turn not in (None, self._turn):
            return
        self._said.append((turn, make))
        if self._roster:
            self._pass_on(make())

    def _say_all(self) -> None:
        """After a welcome. Saying a word twice is harmless."""
        for _, make in list(self._said):
            self._pass_on(make())
        self._await_verdict()

    def _pass_on(self, message: Message) -> None:
        if self._hub:
            self._hub.said(self._hub.own, message)
        elif self._link:
            self._link.send(message)

    def _await_verdict(self) -> None:
        if self._link and self._roster and self._failures and self._verdict_timer is None:
            loop = asyncio.get_running_loop()
            marking = self._settings.complete_within if self._trained else 0  # the hub may be writing the mark
            self._verdict_timer = loop.call_later(self._settings.verdict_within + marking, self._stop_by_itself)

    # ---- what follows --------------------------------------------------------------------------------------------

    def _heard_soon(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self._heard, message)

    def _heard(self, message: Message) -> None:
        match message["word"]:
            case "restart":
                self._begin_turn(protocol.read_restart(message))
            case "begin" if protocol.read_turn(message) == self._turn:
                self._event(protocol.read_begin(message))
            case "lead" if protocol.read_turn(message) == self._turn:
                self._event(Lead())
            case "train" if protocol.read_turn(message) == self._turn:
                self._event(protocol.read_train(message))
            case "collect" if protocol.read_turn(message) == self._turn:
                self._event(Collect())
            case "begin" | "lead" | "train" | "collect":
                pass  # of another turn
            case "stop":
                self._stop(protocol.read_stop(message))
            case "finish":
                self._finish(protocol.read_finish(message))
            case _:
                raise Malformed("unknown word")

    def _begin_turn(self, restart: Restart) -> None:
        """What was said of the turn before is said no more, but what ends this member in any turn."""
        if restart.turn <= self._turn or self._ending:
            return
        self._turn = restart.turn
        self._given -= {Begin, Lead, Train, Collect, Restart}
        self._trained = False
        if self._verdict_timer:
            self._verdict_timer.cancel()
            self._verdict_timer = None
        self._said = [(turn, make) for turn, make in self._said if turn is None]
        self._failures = [(at, cause) for at, cause in self._failures if cause.kind not in AGAIN]
        self._event(restart)
        for at, cause in self._failures:
            self._pass_on(self._failed(cause, at))
        self._await_verdict()

    def _stop(self, stop: Stop) -> None:
        self._event(stop)
        self._leave()

    def _finish(self, after: float = 0.0) -> None:
        self._leave()
        if after > 0:
            self._finishing = asyncio.get_running_loop().call_later(after, self._finish)
            return
        self._event(Finish())
        self._finished.set()

    def _stop_by_itself(self) -> None:
        """The hub had its time for a verdict."""
        cause = first_cause(self._failures)[1]
        if handicap(cause) and self._link and self._link.give_up_if_cut_off():
            return  # the hub is gone, and this member's child died as survivors do
        self._stop(Stop(cause, again=self._settings.gathers and cause.kind in AGAIN))

    def _hub_lost(self, why: str, ended_at: float, silent: bool) -> None:
        may_run_for = self._settings.ends_within if silent and self._settings.gathers else 0.0
        if self._ending:
            if self._finishing is None:  # else the hub has told before it left
                self._finish(may_run_for)
            return
        assert self._roster is not None
        pod = self._roster.members[0].pod
        hub = self._settings.shape.name(0)
        what = (
            f"the hub, {hub} (pod {pod}), was lost without a word: {why}; was its pod deleted, out of memory, or is "
            f"its node gone? `kubectl describe pod {pod}` may tell"
        )
        lost = Cause("lost", 0, pod, what, Exit.PEER_LOST, silent=silent)
        if self._trained and not self._failures:
            self._event(HubLost(lost))
            asyncio.get_running_loop().call_later(may_run_for, self._finished.set)
        else:
            again = self._settings.gathers and all(cause.kind in AGAIN for _, cause in self._failures)
            cause = lost if again else first_cause([*self._failures, (ended_at, lost)])[1]
            self._stop(Stop(cause, again))
            self._finish(may_run_for)

    @property
    def _ending(self) -> bool:
        return Stop in self._given or Finish in self._given

    def _leave(self) -> None:
        if self._link:
            self._link.leave()

    def _event(self, event: Event) -> None:
        """Each once; nothing begins or stops any more once the end is decided."""
        kind = type(event)
        if self._closed or kind in self._given or (self._ending and kind is not Finish):
            return
        self._given.add(kind)
        asyncio.get_running_loop().call_soon(self._events, event)

    async def finished(self) -> None:
        """Until Finish has come, whoever hears it; after HubLost until it would have."""
        await self._finished.wait()

    async def others_end(self) -> None:
        """On the hub, after a stop: until all others that are heard have ended their children."""
        while self._hub is not None and self._hub.others_still_end():
            self._hub.others_have_ended.clear()
            try:
                await bounded(self._hub.others_have_ended.wait(), self._settings.alive_every)
            except asyncio.TimeoutError:
                continue  # somebody may have fallen silent

    def may_run_for(self) -> float:
        """After a finish or a stop: for how long children of this gang may still run anywhere, as far as is known."""
        return END_WITHIN if self._hub is None else self._hub.may_run_for()

    # ---- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Say what is still unsaid, let it arrive, and shut the sockets down; takes at most about a second."""
        if self._closed:
            return
        self._closed = True
        for timer in filter(None, [self._verdict_timer, self._finishing]):
            timer.cancel()
        self._door.close()
        self._strangers.close()
        if self._hub:
            await self._hub.close(_CLOSE_WITHIN)
        if self._link:
            await self._link.close(_CLOSE_WITHIN)
