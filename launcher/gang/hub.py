"""The hub: who is in the gang, when it trains, why it stops, when it has finished. It decides; members only report."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from launcher.addresses import sort_key
from launcher.errors import Exit
from launcher.gang import protocol
from launcher.gang.connection import Connection, Pulse, settle
from launcher.gang.protocol import Hello, Malformed, Message
from launcher.gang.strangers import Refusal
from launcher.gang.verdict import first_cause, handicap
from launcher.gang.words import LookAgain, Missing, Papers, Settings
from launcher.model import Cause, Member, Roster
from launcher.roles import PSERVER, Shape

_MISSING_SHOWN = 20


@dataclass(eq=False)
class Seat:
    """A member's place. The hub's own has no connection: what it says and hears goes directly."""

    member: Member
    incarnation: str
    connection: Connection | None = None
    hub_nonce: str = ""
    nonce: str = ""
    said: set[str] = field(default_factory=set)
    ended_at: float | None = None  # its connection has ended, and it has not returned
    lost: bool = False

    @property
    def rank(self) -> int:
        assert self.member.rank is not None
        return self.member.rank


class Hub:
    """Collects the members until the roster is complete, then leads the gang.

    `hear` gets what the hub says to its own member; `complete` writes the mark of completion; `judge` may turn the
    first cause into a final one.
    """

    def __init__(
        self,
        papers: Papers,
        settings: Settings,
        *,
        hear: Callable[[Message], None],
        say: Callable[[str], None],
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], Cause],
    ) -> None:
        self._papers = papers
        self._settings = settings
        self._hear = hear
        self._say = say
        self._complete = complete
        self._judge = judge
        self._numbered = papers.me.rank is not None
        self._own = Seat(papers.me, papers.incarnation)
        self._waiting: dict[int | str, Seat] = {self._key(papers.me): self._own}
        self._absent = dict.fromkeys(range(settings.size)) if self._numbered else {}
        self._absent.pop(papers.me.rank or 0, None)
        self._full: asyncio.Future[Roster] = asyncio.get_running_loop().create_future()
        self._pulse = Pulse(settings.alive_every, settings.silence, self._connections, self._pulse_line)
        self._pulse.start()

        self._seats: list[Seat] = []  # in rank order, once the roster is complete
        self._by_incarnation: dict[str, Seat] = {}
        self._gang = ""
        self._welcomes: protocol.Welcomes | None = None
        self._said: Counter[str] = Counter()
        self._training = False
        self._reports: list[tuple[float, Cause]] = []
        self._decide_at = 0.0
        self._completing: asyncio.Task[None] | None = None
        self._cause: Cause | None = None
        self._finished = False
        self._closed = False

    # ---- joining -------------------------------------------------------------------------------------------------

    async def roster(self) -> Roster:
        """The complete roster. LookAgain when this launcher turns out not to be the one with the lowest address."""
        if self._settings.size == 1:
            self._begin()
        return await self._full

    def missing(self) -> Missing:
        """Who is waited for."""
        joined = len(self._seats) or len(self._waiting)
        return Missing(joined, self._settings.size, tuple(islice(self._absent, _MISSING_SHOWN)))

    def joined(self) -> list[str]:
        """The pods that have joined so far."""
        return [seat.member.pod for seat in self._waiting.values()]

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
        member = hello.member
        if hello.gang is not None:
            raise Refusal("another gang", "the gang that this member was in is gone")
        self._check_place(member)
        key = self._key(member)
        holder = self._waiting.get(key)
        if holder and holder.incarnation != hello.incarnation and not _same_pod(holder.member, member):
            place = f"address {key}" if member.rank is None else self._settings.shape.name(member.rank)
            raise Refusal("a place that is held", f"{place} is held by pod {holder.member.pod}, not by {member.pod}")
        seat = Seat(member, hello.incarnation)
        self._waiting[key] = seat
        self._absent.pop(member.rank or 0, None)
        if holder and holder.connection:
            holder.connection.fail("replaced")
        self._seat(seat, connection, nonce, hello)
        connection.send(protocol.encode(protocol.waiting(self.missing())))
        if len(self._waiting) == self._settings.size:
            self._begin()

    def _check_place(self, member: Member) -> None:
        shape = self._settings.shape
        self._refuse_other_controllers(member)
        if (member.rank is not None) != self._numbered:
            these, those = ("a number", "none") if self._numbered else ("no number", "one")
            raise Refusal(
                "numbers", f"the hub's pod has {these}, pod {member.pod} has {those}: run all from one object"
            )
        if member.rank is not None:
            if member.rank >= self._settings.size:
                raise Refusal(
                    "a rank out of range",
                    f"pod {member.pod} has rank {member.rank}, but there are only {self._settings.size} members: "
                    "is CONF_PADDLE_GRADIENT_NUM less than the number of pods?",
                )
            if member.role != shape.role(member.rank):
                raise Refusal("another role", f"pod {member.pod} is no {shape.role(member.rank)}: see LAUNCHER_ROLE")
        elif self._is_full(member):
            raise Refusal(
                "a role that is full", f"there are {shape.count(member.role)} members of the role {member.role} already"
            )
        elif _order(member) < _order(self._papers.me):
            reason = f"pod {member.pod} has a lower address, {member.address}"
            if not self._full.done():
                self._full.set_exception(LookAgain(f"not the hub: {reason}"))
            raise Refusal("a lower address", f"{reason}, than this launcher: it is the hub")

    def _refuse_other_controllers(self, member: Member) -> None:
        """Pods of an older job of the other role may still be there, and even know the secret of this job's folder."""
        if not self._settings.pservers:
            return
        for seat in self._waiting.values():
            other = seat.member
            one_is_unknown = bool(other.controller) != bool(member.controller)
            if one_is_unknown or (other.role == member.role and other.controller != member.controller):
                raise Refusal(
                    "another job",
                    f"pod {other.pod}, which has joined, is controlled by {other.controller or 'nobody known'}, "
                    f"pod {member.pod} by {member.controller or 'nobody known'}",
                )

    def _is_full(self, member: Member) -> bool:
        """Without roles the gang begins when it is full."""
        if not self._settings.pservers:
            return False
        others = [seat.member for seat in self._waiting.values() if seat.member.address != member.address]
        return sum(other.role == member.role for other in others) >= self._settings.shape.count(member.role)

    def _key(self, member: Member) -> int | str:
        return member.address if member.rank is None else member.rank

    def _seat(self, seat: Seat, connection: Connection, nonce: str, hello: Hello) -> None:
        """From here on this connection speaks for this member."""
        seat.connection, seat.hub_nonce, seat.nonce = connection, nonce, hello.nonce
        connection.limit = protocol.KNOWN_LIMIT
        connection.heard = partial(self._heard, seat)
        connection.ended = partial(self._ended, seat)

    def _begin(self) -> None:
        """All are here: ranks are given, and everybody is welcome."""
        if self._full.done():
            return  # found to be no hub
        seats = sorted(self._waiting.values(), key=lambda seat: _order(seat.member))
        for rank, seat in enumerate(seats):
            seat.member = replace(seat.member, rank=rank)
        self._seats = seats
        self._waiting.clear()
        self._by_incarnation = {seat.incarnation: seat for seat in seats}
        self._gang = os.urandom(8).hex()
        roster = Roster(tuple(seat.member for seat in seats))
        self._welcomes = protocol.Welcomes(self._gang, self._papers.generation, roster)
        self._full.set_result(roster)
        for seat in seats:
            if seat is not self._own:
                self._welcome(seat)

    def _welcome(self, seat: Seat) -> None:
        assert self._welcomes is not None
        if seat.connection is not None:
            seat.connection.send(self._welcomes.line(seat.rank, self._papers.secret, seat.hub_nonce, seat.nonce))

    # ---- connections ---------------------------------------------------------------------------------------------

    def _connections(self) -> list[Connection]:
        seats = self._seats or self._waiting.values()
        return [seat.connection for seat in seats if seat.connection is not None]

    def _pulse_line(self) -> bytes:
        return protocol.ALIVE if self._seats else protocol.encode(protocol.waiting(self.missing()))

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
            self._forget(seat)
            return
        seat.ended_at = connection.heard_at if connection.silent else time.monotonic()
        if self._cause:
            self._someone_left(seat)
            return
        if connection.why:  # silence, or nonsense
            self._lose(seat, seat.ended_at, connection.why)
            return
        patience = self._settings.return_within
        why = f"its connection ended and it did not return within {patience:g} s"
        asyncio.get_running_loop().call_later(patience, self._lose, seat, seat.ended_at, why)

    def _forget(self, seat: Seat) -> None:
        key = self._key(seat.member)
        if self._waiting.get(key) is seat:
            del self._waiting[key]
            if seat.member.rank is not None:
                self._absent = dict.fromkeys(sorted([*self._absent, seat.member.rank]))

    def _return(self, connection: Connection, nonce: str, hello: Hello) -> None:
        seat = self._by_incarnation.get(hello.incarnation)
        if seat is None or seat is self._own or hello.gang not in (None, self._gang):
            raise Refusal("a latecomer", f"the gang is complete and runs without pod {hello.member.pod}")
        before = seat.connection
        self._seat(seat, connection, nonce, hello)
        seat.ended_at = None
        if before is not None:
            before.fail("replaced")
        self._welcome(seat)
        if self._training:
            connection.send(protocol.encode(protocol.word("train")))
        if self._cause:
            connection.send(protocol.encode(protocol.stop(self._cause)))
        if self._finished:
            connection.send(protocol.encode(protocol.word("finish")))
        if self._reports and not self._cause:
            self._collect()  # what it will now say again may be the first cause

    def _lose(self, seat: Seat, ended_at: float, why: str) -> None:
        """Unless it has returned meanwhile, this member is dead."""
        if seat.ended_at != ended_at or seat.lost:
            return
        seat.lost = True
        name = self._settings.shape.name(seat.rank)
        what = (
            f"{name} (pod {seat.member.pod}) was lost without a word: {why}; was its pod deleted, out of memory, or is "
            f"its node gone? `kubectl describe pod {seat.member.pod}` may tell"
        )
        self._report(ended_at, Cause("lost", seat.rank, seat.member.pod, what, Exit.PEER_LOST))

    # ---- what members say ----------------------------------------------------------------------------------------

    @property
    def own(self) -> Seat:
        """The seat of the hub's own member."""
        return self._own

    def said(self, seat: Seat, message: Message) -> None:
        """A member has said something, for the first time or again."""
        match message["word"]:
            case "staged" | "serving" | "trained" | "stopped" as word:
                if word not in seat.said:
                    seat.said.add(word)
                    self._said[word] += 1
                    self._go_on(seat, word)
            case "failed":
                cause, age = protocol.read_failed(message)
                if cause.rank is None and cause.kind == "stopped":  # said before it had heard its rank
                    cause = replace(cause, rank=seat.rank)
                self._report(time.monotonic() - age, cause)
            case _:
                raise Malformed("unknown word")

    def _go_on(self, seat: Seat, word: str) -> None:
        if self._reports or self._cause:
            if word == "stopped":
                self._someone_left(seat)
            return
        size = self._settings.size
        if word == "trained" and self._said["trained"] == size and not self._completing:
            self._completing = asyncio.get_running_loop().create_task(self._mark_and_finish())
        if word == "staged" and self._said["staged"] == size:
            self._hear(protocol.word("lead"))
        if self._said["staged"] == self._said["serving"] == size and not self._training:
            self._training = True
            self._tell_all(protocol.word("train"))

    def _tell_all(self, message: Message) -> None:
        line = protocol.encode(message)
        for connection in self._connections():
            connection.send(line)
        self._hear(message)

    # ---- completion ----------------------------------------------------------------------------------------------

    async def _mark_and_finish(self) -> None:
        """All have trained, so nothing can fail any more: first the mark, then the word."""
        marking = asyncio.ensure_future(self._complete())
        await asyncio.wait([marking], timeout=self._settings.complete_within)
        if not marking.done():
            self._say(f"the mark of completion is not written after {self._settings.complete_within:g} s: going on")
        elif not marking.cancelled() and (error := marking.exception()):
            self._say(f"the mark of completion could not be written: {error}")
        self._finish()

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            self._tell_all(protocol.word("finish"))

    # ---- failure -------------------------------------------------------------------------------------------------

    def _report(self, died_at: float, cause: Cause) -> None:
        if self._completing:
            return
        first = not self._reports
        if all(cause != known for _, known in self._reports):
            self._reports.append((died_at, cause))
        if first:
            self._collect()
        else:
            self._decide()

    def _collect(self) -> None:
        self._decide_at = time.monotonic() + self._settings.collect
        asyncio.get_running_loop().call_at(self._decide_at, self._decide)

    def _decide(self) -> None:
        """Name the first cause, once nobody is awaited any more whose loss would be older."""
        if self._cause or time.monotonic() < self._decide_at:
            return
        died_at, cause = first_cause(self._reports)
        latest = died_at + handicap(cause)
        if any(seat.ended_at is not None and not seat.lost and seat.ended_at <= latest for seat in self._seats):
            return  # it returns or is lost within a second
        self._stop(cause)

    def _stop(self, cause: Cause) -> None:
        self._cause = self._judged(cause)
        self._tell_all(protocol.stop(self._cause))
        culprit = self._culprit()
        if culprit is None or culprit.ended_at is not None or "stopped" in culprit.said:
            self._finish()
        elif self._cause.kind != "stopped":  # who was told to stop may use all of its grace
            asyncio.get_running_loop().call_later(self._settings.leave_within, self._finish)

    def _judged(self, cause: Cause) -> Cause:
        try:
            return self._judge(cause)
        except Exception as error:
            self._say(f"judging the first cause failed, it stands as it is: {error!r}")
            return cause

    def _culprit(self) -> Seat | None:
        rank = self._cause.rank if self._cause else None
        return self._seats[rank] if rank is not None and rank < len(self._seats) else None

    def _someone_left(self, seat: Seat) -> None:
        if self._cause and seat is self._culprit():
            self._finish()

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
        if self._seats and self._reports and not self._cause:
            self._stop(first_cause(self._reports)[1])
        if self._cause:
            self._finish()
        self._closed = True
        await settle(self._connections(), within)


def _order(member: Member) -> tuple[bool, int, int]:
    """By rank, where there are numbers; else by address, and trainers first."""
    if member.rank is not None:
        return False, 0, member.rank
    try:
        return member.role == PSERVER, *sort_key(member.address)
    except ValueError as error:
        raise Malformed("address") from error


def _counted(shape: Shape) -> str:
    return f"{shape.trainers} trainers and {shape.pservers} pservers" if shape.pservers else f"{shape.size} members"


def _same_pod(one: Member, other: Member) -> bool:
    """A container that started again: its predecessor is dead, even if a stalled volume holds its sockets open."""
    return one.uid != "" and one.uid == other.uid
