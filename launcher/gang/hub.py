"""The hub: when the gang begins, trains, begins again, stops, and has finished. It decides; members only report."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from launcher.errors import Exit
from launcher.gang import ending, protocol
from launcher.gang.connection import Connection, Heartbeat, settle
from launcher.gang.events import AlreadyComplete, Credentials, GangSettings, Missing, Next, NotAgain
from launcher.gang.first_cause import first_cause, handicap
from launcher.gang.protocol import Hello, Malformed, Message
from launcher.gang.refusals import Refusal
from launcher.gang.seats import RollCall, Seat
from launcher.gang.stall import Stall
from launcher.model import Cause, Roster, Shape, Start

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Turn:
    """One start of the job's processes: what was said of it, by whose ranks."""

    number: int
    cause: Cause | None = None  # why the turn before it failed; None for the first
    said: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    reports: list[tuple[float, Cause]] = field(default_factory=list)
    preparing: asyncio.Task[None] | None = None
    start: Start | None = None
    led: bool = False
    training: bool = False


class Hub:
    """Collects the members until the roster is complete, then leads the gang.

    `hear` gets what the hub says to its own member; for the rest see `Gang`.
    """

    def __init__(
        self,
        papers: Credentials,
        settings: GangSettings,
        *,
        hear: Callable[[Message], None],
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], tuple[Cause, Next]],
        prepare: Callable[[Cause | None], Awaitable[Start]],
    ) -> None:
        self._papers = papers
        self._settings = settings
        self._hear = hear
        self._complete = complete
        self._judge = judge
        self._prepare = prepare
        self._joining = RollCall(papers, settings)
        self._pulse = Heartbeat(
            settings.alive_every, settings.silence, self._connections, self._pulse_line, self._say_unheard
        )
        self._pulse.start()

        self._seats: list[Seat] = []  # in rank order, once the roster is complete
        self._by_incarnation: dict[str, Seat] = {}
        self.gang = ""  # its identity, once it is complete
        self._welcomes: protocol.Welcomes | None = None
        self._staged: set[int] = set()
        self._turn = Turn(0)
        self._stall = Stall(settings, self._tell_all, lambda cause: self._report(time.monotonic(), cause))
        self._collecting: asyncio.TimerHandle | None = None
        self._completing: asyncio.Task[None] | None = None
        self._cause: Cause | None = None
        self._again = False  # once it is over
        self._stopped_at = 0.0
        self._finished = False
        self._seeing_all_end: asyncio.TimerHandle | None = None
        self.others_have_ended = asyncio.Event()  # after a stop, as far as they are heard
        self._closed = False

    # ---- joining -------------------------------------------------------------------------------------------------

    async def roster(self) -> Roster:
        """The complete roster. LookAgain when this launcher turns out not to be the one with the lowest address."""
        if seats := self._joining.complete():
            self._begin(seats)
        await self._joining.full
        return Roster(tuple(seat.member for seat in self._seats))

    def missing(self) -> Missing:
        """Who is waited for."""
        return self._joining.missing()

    def joined(self) -> list[str]:
        """The pods that have joined so far."""
        return [seat.member.pod for seat in self._joining.seats]

    def greet(self, connection: Connection, nonce: str, message: Message) -> None:
        """Judge a hello: take the connection over, or raise Refusal."""
        hello = self._checked(nonce, message)
        if self._seats:
            self._return(connection, nonce, hello)
        else:
            self._admit(connection, nonce, hello)

    def _checked(self, nonce: str, message: Message) -> Hello:
        version = protocol.version_of(message)
        if version != protocol.VERSION:
            theirs = version if isinstance(version, int) else "unknown"
            raise Refusal(
                "another version",
                f"the hub speaks version {protocol.VERSION} of the gang's protocol, this member version {theirs}: "
                "run the same image in all pods",
            )
        hello = protocol.read_hello(message)
        roles = self._settings.pservers or hello.shape.pservers
        if hello.job != self._papers.job:
            raise Refusal("another job", f"the hub is of job {self._papers.job!r}, this member of job {hello.job!r}")
        if not protocol.answered(hello, self._papers.secret, nonce):
            raise Refusal("wrong proof", "the secret of this member is not the one of the hub")
        if hello.shape != self._settings.shape:
            raise Refusal(
                "another size",
                f"the hub expects {_counted(self._settings.shape)}, pod {hello.member.pod} expects "
                f"{_counted(hello.shape)}: CONF_PADDLE_GRADIENT_NUM{' and LAUNCHER_PSERVERS' if roles else ''} must be "
                "the same in all pods",
            )
        return hello

    def _admit(self, connection: Connection, nonce: str, hello: Hello) -> None:
        seat = self._joining.admit(hello)
        self._seat(seat, connection, nonce, hello)
        connection.send(protocol.encode(protocol.waiting(self.missing())))
        if seats := self._joining.complete():
            self._begin(seats)

    def _seat(self, seat: Seat, connection: Connection, nonce: str, hello: Hello) -> None:
        """From here on this connection speaks for this member."""
        seat.connection, seat.hub_nonce, seat.nonce = connection, nonce, hello.nonce
        connection.limit = protocol.KNOWN_LIMIT
        connection.heard = partial(self._heard, seat)
        connection.ended = partial(self._ended, seat)

    def _begin(self, seats: list[Seat]) -> None:
        """All are here, and everybody is welcome."""
        self._seats = seats
        self._by_incarnation = {seat.incarnation: seat for seat in seats}
        self.gang = os.urandom(8).hex()
        self._welcomes = protocol.Welcomes(self.gang, Roster(tuple(seat.member for seat in seats)))
        for seat in seats:
            if seat is not self._joining.own:
                self._welcome(seat)
        self._prepare_turn()

    def _welcome(self, seat: Seat) -> None:
        assert self._welcomes is not None
        if seat.connection is not None:
            line = self._welcomes.line(self._turn.number, seat.rank, self._papers.secret, seat.hub_nonce, seat.nonce)
            seat.connection.send(line)

    # ---- connections ---------------------------------------------------------------------------------------------

    def _connections(self) -> list[Connection]:
        seats = self._seats or self._joining.seats
        return [seat.connection for seat in seats if seat.connection is not None]

    def _pulse_line(self) -> bytes:
        return protocol.ALIVE if self._seats else protocol.encode(protocol.waiting(self.missing()))

    def _say_unheard(self, connection: Connection) -> None:
        if self._seats:
            connection.send(protocol.encode(protocol.word("unheard")))

    def _heard(self, seat: Seat, connection: Connection, message: Message) -> None:
        if self._seats and seat.connection is connection:
            self.said(seat, message)
        elif not self._seats:
            raise Malformed("nothing is due before the welcome")

    def _ended(self, seat: Seat, connection: Connection) -> None:
        if seat.connection is not connection or self._closed:
            return  # it has returned on another one, or all is over
        seat.connection = None
        if not self._seats:
            self._joining.forget(seat)
            return
        seat.ended_at = connection.heard_at if connection.silent else time.monotonic()
        seat.silent = connection.silent
        if self._cause:
            self._someone_left(seat)
            return
        if connection.why:  # silence, or nonsense
            self._lose(seat, seat.ended_at, connection.why, silent=connection.silent)
            return
        patience = self._settings.return_within
        why = f"its connection ended and it did not return within {patience:g} s"
        asyncio.get_running_loop().call_later(patience, self._lose, seat, seat.ended_at, why)

    def _return(self, connection: Connection, nonce: str, hello: Hello) -> None:
        seat = self._by_incarnation.get(hello.incarnation)
        if seat is None or seat is self._joining.own or hello.gang not in (None, self.gang):
            raise Refusal("a latecomer", f"the gang is complete and runs without pod {hello.member.pod}")
        before = seat.connection
        self._seat(seat, connection, nonce, hello)
        seat.ended_at, seat.silent = None, False
        if before is not None:
            before.fail("replaced")
        self._welcome(seat)
        for message in self._where_the_gang_is():
            connection.send(protocol.encode(message))
        if self._turn.reports and not self._cause:
            self._collect()  # what it will now say again may be the first cause

    def _where_the_gang_is(self) -> list[Message]:
        """What was said of this turn, and of the end."""
        turn = self._turn
        said = [
            turn.cause and protocol.restart(turn.number, turn.cause),
            turn.start and protocol.begin(turn.number, turn.start),
            turn.training and protocol.train(turn.number, self._settings.stall),
            self._stall.where(),
            self._cause and protocol.stop(self._cause, self._again),
            self._finished and protocol.finish(),
        ]
        return [message for message in said if message]

    def _lose(self, seat: Seat, ended_at: float, why: str, silent: bool = False) -> None:
        """Unless it has returned meanwhile, this member is dead."""
        if seat.ended_at != ended_at or seat.lost:
            return
        seat.lost = True
        name = self._settings.shape.name(seat.rank)
        what = (
            f"{name} (pod {seat.member.pod}) was lost without a word: {why}; was its pod deleted, out of memory, or is "
            f"its node gone? `kubectl describe pod {seat.member.pod}` may tell"
        )
        self._report(ended_at, Cause("lost", seat.rank, seat.member.pod, what, Exit.PEER_LOST, silent=silent))

    # ---- what members say ----------------------------------------------------------------------------------------

    @property
    def own(self) -> Seat:
        """The seat of the hub's own member."""
        return self._joining.own

    def said(self, seat: Seat, message: Message) -> None:
        """A member has said something, for the first time or again."""
        match message["word"]:
            case "staged":
                self._staged.add(seat.rank)
            case "serving" | "trained" | "ended" as word:
                if protocol.read_turn(message) == self._turn.number:
                    self._turn.said[word].add(seat.rank)
            case "progress":
                self._stall.heard(seat.rank, message)
            case "collected":
                self._stall.collected(seat.rank, message)
            case "stopped":
                seat.stopped = True
                self._someone_left(seat)
                self._see_who_leaves_by_itself(seat)
            case "failed":
                cause, age = protocol.read_failed(message)
                seat.told = seat.told or cause.kind == "stopped"
                if cause.rank is None and cause.kind == "stopped":  # said before it had heard its rank
                    cause = replace(cause, rank=seat.rank)
                if protocol.read_turn(message) == self._turn.number:
                    self._report(time.monotonic() - age, cause)
            case _:
                raise Malformed("unknown word")
        self._go_on()

    def _go_on(self) -> None:
        """What all have said lets follow what waits for it, each once."""
        turn = self._turn
        if turn.reports or self._cause:
            return
        if self._all(turn.said["ended"]) and turn.preparing is None:
            self._prepare_turn()
        if turn.start is None:
            return
        if self._all(self._staged) and not turn.led:
            turn.led = True
            self._hear(protocol.of_turn("lead", turn.number))
        if self._all(self._staged) and self._all(turn.said["serving"]) and not turn.training:
            turn.training = True
            self._stall.watch(turn.number)
            self._tell_all(protocol.train(turn.number, self._settings.stall))
        if self._all(turn.said["trained"]) and not self._completing:
            self._stall.end()
            self._completing = asyncio.get_running_loop().create_task(self._mark_and_finish())

    def _all(self, ranks: set[int]) -> bool:
        return len(ranks) == self._settings.size

    def _tell_all(self, message: Message) -> None:
        line = protocol.encode(message)
        for connection in self._connections():
            connection.send(line)
        self._hear(message)

    # ---- turns ---------------------------------------------------------------------------------------------------

    def _prepare_turn(self) -> None:
        self._turn.preparing = asyncio.get_running_loop().create_task(self._settle_start(self._turn))

    async def _settle_start(self, turn: Turn) -> None:
        """Nothing of an earlier turn is left: this one may begin as soon as it is settled from where."""
        try:
            start = await self._prepare(turn.cause)
        except NotAgain as no:
            self._stop_unless_over(turn, no.cause)
        except AlreadyComplete:
            if turn is self._turn and not self._cause:
                self._finish()
        except Exception as error:
            what = f"a fault of the launcher itself before a start, please report it: {error!r}"
            self._stop_unless_over(turn, Cause("launcher", self.own.rank, self.own.member.pod, what, Exit.MASKED))
        else:
            if turn is self._turn and not self._cause:
                turn.start = start
                self._tell_all(protocol.begin(turn.number, start))
                self._go_on()

    def _stop_unless_over(self, turn: Turn, cause: Cause) -> None:
        if turn is self._turn and not self._cause:
            self._stop(cause)

    def _restart(self, cause: Cause) -> None:
        """All children everywhere are to be ended; the next turn begins once they are."""
        if self._turn.preparing is not None:
            self._turn.preparing.cancel()  # nobody waits any more for what it would settle
        turn = self._turn = Turn(self._turn.number + 1, cause)
        self._tell_all(protocol.restart(turn.number, cause))
        asyncio.get_running_loop().call_later(self._settings.restart_within, self._unless_ended, turn)

    def _unless_ended(self, turn: Turn, were_cut_off: bool = False) -> None:
        """Whoever does not end its children has told why, if it could."""
        if turn.preparing is not None or turn.cause is None or turn is not self._turn or self._cause:
            return
        loop = asyncio.get_running_loop()
        missing = [seat for seat in self._seats if seat.rank not in turn.said["ended"]]
        # Who is cut off has not heard of it, and returns or is lost.
        if missing and all(ending.is_cut_off(seat, self._settings) for seat in missing):
            loop.call_later(self._settings.alive_every, self._unless_ended, turn, True)
            return
        if were_cut_off:  # has heard of it only now
            loop.call_later(self._settings.restart_within, self._unless_ended, turn)
            return
        names, within = self._settings.shape.names([seat.rank for seat in missing]), self._settings.restart_within
        what = f"{turn.cause.what}; not started again: {names} did not end within {within:g} s"
        self._stop(replace(turn.cause, what=what))

    # ---- completion ----------------------------------------------------------------------------------------------

    async def _mark_and_finish(self) -> None:
        """All have trained, so nothing can fail any more: first the mark, then the word."""
        marking = asyncio.ensure_future(self._complete())
        marking.add_done_callback(self._marked)
        await asyncio.wait([marking], timeout=self._settings.complete_within)
        if not marking.done():
            log.info(f"the mark of completion is not written after {self._settings.complete_within:g} s: going on")
        self._finish()

    def _marked(self, marking: asyncio.Future[None]) -> None:
        """Perhaps later than anybody waits for it."""
        if not marking.cancelled() and (error := marking.exception()):
            log.info(f"the mark of completion could not be written: {error}")

    def _finish(self, after: float = 0.0) -> None:
        if not self._finished:
            self._finished = True
            self._tell_all(protocol.finish(after))

    # ---- failure -------------------------------------------------------------------------------------------------

    def _report(self, died_at: float, cause: Cause) -> None:
        if self._completing or self._cause or self._finished:
            return
        self._stall.end()
        reports = self._turn.reports
        first = not reports
        if all(cause != known for _, known in reports):
            reports.append((died_at, cause))
        if first:
            self._collect()
        else:
            self._decide()

    def _collect(self) -> None:
        if self._collecting:
            self._collecting.cancel()
        self._collecting = asyncio.get_running_loop().call_later(self._settings.collect, self._collected)

    def _collected(self) -> None:
        self._collecting = None
        self._decide()

    def _decide(self) -> None:
        """Name the first cause, once nobody is awaited any more whose loss would be older."""
        if self._cause or not self._turn.reports or self._collecting:
            return
        died_at, cause = first_cause(self._turn.reports)
        if handicap(cause) and self._give_up_who_is_cut_off():
            return  # their loss is reported at once
        latest = died_at + handicap(cause)
        if any(seat.ended_at is not None and not seat.lost and seat.ended_at <= latest for seat in self._seats):
            return  # it returns or is lost within a second
        cause, then = self._judged(cause)
        if then is Next.RESTART and any(seat.lost for seat in self._seats):
            self._stop(cause, again=self._settings.gathers)
        elif then is Next.RESTART:
            self._restart(cause)
        else:
            self._stop(cause, again=then is Next.GATHER)

    def _give_up_who_is_cut_off(self) -> bool:
        """Somebody has died as those do who survive a peer, long after another one was heard: gloo waits for 30 s."""
        open_ones = [seat.connection for seat in self._seats if seat.connection]
        gone = [connection for connection in open_ones if connection.give_up_if_cut_off(self._settings.alive_every)]
        return bool(gone)

    def _stop(self, cause: Cause, *, again: bool = False) -> None:
        self._cause, self._again = cause, again
        self._stopped_at = time.monotonic()
        if self._turn.preparing is not None:
            self._turn.preparing.cancel()
        self._tell_all(protocol.stop(cause, again))
        if again:
            self._see_all_end()
            return
        culprit = self._culprit()
        if culprit is None or culprit.ended_at is not None or culprit.stopped:
            self._finish()
        elif cause.kind != "stopped":  # who was told to stop may use all of its grace
            asyncio.get_running_loop().call_later(self._settings.leave_within, self._finish)

    def _judged(self, cause: Cause) -> tuple[Cause, Next]:
        try:
            return self._judge(cause)
        except Exception as error:
            log.info(f"judging the first cause failed, it stands as it is: {error!r}")
            return cause, Next.STOP

    def _culprit(self) -> Seat | None:
        rank = self._cause.rank if self._cause else None
        return self._seats[rank] if rank is not None and rank < len(self._seats) else None

    def _someone_left(self, seat: Seat) -> None:
        if self._cause is None:
            return
        if not self.others_still_end():
            self.others_have_ended.set()
            if self._again:
                self._see_all_end()
        if not self._again and seat is self._culprit():
            self._finish()

    def _see_who_leaves_by_itself(self, seat: Seat) -> None:
        """It had no verdict in time, and takes part in no further turn."""
        if self._cause or self._finished or self._completing:
            return
        seat.lost = True
        what = f"{self._settings.shape.name(seat.rank)} (pod {seat.member.pod}) did not hear the hub in time and left"
        self._report(time.monotonic(), Cause("lost", seat.rank, seat.member.pod, what, Exit.PEER_LOST))

    def _see_all_end(self) -> None:
        """Whoever cannot be asked is known to end its children by itself."""
        if self._seeing_all_end:
            self._seeing_all_end.cancel()
        still = ending.may_run_for(self._seats, self._settings)
        if still > 0:
            self._seeing_all_end = asyncio.get_running_loop().call_later(still, self._finish)
        else:
            self._finish()

    def others_still_end(self) -> bool:
        """Whether members that are heard have children left."""
        return ending.still_end(self._seats, self._settings)

    def may_run_for(self) -> float:
        """For how long children of members may still run, at most, after a finish or a stop."""
        silent = [seat for seat in self._seats if ending.is_silent(seat, self._settings)]
        heard = 0.0
        if self._cause and self.others_still_end():
            orderly = self._cause.kind == "stopped" or any(seat.told and not seat.stopped for seat in self._seats)
            left = self._stopped_at + self._settings.grace - time.monotonic() if orderly else 0.0
            heard = ending.END_WITHIN + max(left, 0.0)
        return max(heard, ending.may_run_for(silent, self._settings))

    # ---- the end -------------------------------------------------------------------------------------------------

    def dissolve(self, reason: str) -> None:
        """Not the hub after all: whoever has joined looks again."""
        self._pulse.stop()
        for connection in self._connections():
            connection.send(protocol.encode(protocol.again(reason)))
            connection.close()

    async def close(self, within: float) -> None:
        """Say what is still unsaid, and see that it arrives."""
        self._pulse.stop()
        self._stall.end()
        if self._turn.preparing is not None:
            self._turn.preparing.cancel()
        if self._seats and self._turn.reports and not self._cause:
            self._stop(self._judged(first_cause(self._turn.reports)[1])[0])
        if self._cause:
            self._finish(self.may_run_for() if self._again else 0.0)
        if self._seeing_all_end:
            self._seeing_all_end.cancel()
        self._closed = True
        await settle(self._connections(), within)


def _counted(shape: Shape) -> str:
    return f"{shape.trainers} trainers and {shape.pservers} pservers" if shape.pservers else f"{shape.size} members"
