"""The hub of a gang: its members and their connections. Members only report, the hub decides.

RollCall (seats.py)    who may join, until the roster is complete
Attempts (attempts.py) when an attempt begins, trains, completes or fails
Ending   (ending.py)   who leaves first, and when all may leave
Cuts     (cuts.py)     which members cannot reach each other
Surveys  (survey.py)   what the processes of all members do
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from launcher.errors import Exit
from launcher.gang import handshake, messages, protocol
from launcher.gang.attempts import Attempts
from launcher.gang.connection import Connection, Heartbeat, close_gracefully
from launcher.gang.cuts import Cuts
from launcher.gang.ending import Ending
from launcher.gang.events import Credentials, GangSettings, MissingMembers, Verdict
from launcher.gang.handshake import Join
from launcher.gang.listener import Refusal
from launcher.gang.lost import early_leaver, lost_member
from launcher.gang.newcomers import Newcomers
from launcher.gang.protocol import Malformed, Message
from launcher.gang.refusals import FORGED, RefusalLog
from launcher.gang.seal import digest
from launcher.gang.seats import RollCall, Seat, Seats
from launcher.gang.survey import Surveys
from launcher.model import (
    HETER,
    PSERVER,
    TRAINS,
    Cause,
    CauseKind,
    MemberReport,
    Roster,
    Shape,
    Start,
    role_name,
)


class Hub:
    """Keep one connection to each member, and pass on what members report.

    tell_own_member: called with each message of the hub to its own member, which has no connection
    For the other arguments see `Gang`.
    """

    def __init__(
        self,
        credentials: Credentials,
        settings: GangSettings,
        refusals: RefusalLog,
        *,
        tell_own_member: Callable[[Message], None],
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], tuple[Cause, Verdict]],
        prepare: Callable[[Cause | None], Awaitable[Start]],
        seen: Callable[[str, int, str, str], None],
        newcomer: Callable[[], None],
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._refusals = refusals
        self._tell_own_member = tell_own_member
        self._seen = seen
        self._roll_call = RollCall(credentials, settings, self._begin_if_complete)
        self._newcomers = Newcomers(settings.size, newcomer)
        self._heartbeat = Heartbeat(
            settings.heartbeat_every,
            settings.silence,
            lambda: [*self._connections(), *self._newcomers.connections],
            self._heartbeat_line,
            self._tell_unheard,
        )
        self._heartbeat.start()

        self._admitted: list[Connection] = []  # of members that have joined, and do not know yet that they wait
        self._seats = Seats()
        self._by_incarnation: dict[str, Seat] = {}
        self.gang = ""  # the identity of the gang, once the roster is complete
        self._welcomes: handshake.Welcomes | None = None
        self.ending = Ending(settings, self._seats, self._broadcast)
        self._cuts = Cuts(settings, self._seats)
        self._surveys = Surveys(self._seats, self._broadcast)
        self._attempts = Attempts(
            settings,
            self._seats,
            self.ending,
            self._surveys,
            broadcast=self._broadcast,
            tell_own_member=tell_own_member,
            complete=complete,
            judge=lambda cause: judge(self._cuts.explain(cause)),
            prepare=prepare,
        )
        self._closed = False

    # ---- joining -------------------------------------------------------------------------------------------------

    async def wait_complete(self) -> Roster:
        """Wait until the roster is complete, and return it.

        Raise JoinFailed if a member with a lower address tries to join: that member must be the hub.
        """
        self._begin_if_complete()
        await self._roll_call.full
        return Roster(tuple(seat.member for seat in self._seats))

    def missing(self) -> MissingMembers:
        return self._roll_call.missing()

    def connected_members(self) -> int:
        return len(self._connections())

    def joined_pods(self) -> list[str]:
        return [seat.member.pod for seat in self._roll_call.seats]

    def joined_addresses(self) -> list[str]:
        return [seat.member.address for seat in self._roll_call.seats]

    def on_join(self, connection: Connection, message: Message) -> None:
        """Use a new connection for the member that has sent this join. Raise Refusal if the join is not accepted."""
        join = handshake.read_join(message)
        self._check(join)
        if self._seats:
            self._reconnect(connection, join)
        else:
            self._admit(connection, join)

    def _begin_if_complete(self) -> None:
        if seats := self._roll_call.complete():
            self._begin(seats)

    def _check(self, join: Join) -> None:
        """Raise Refusal if the member belongs to another job, or has another configuration."""
        if join.job != self._credentials.job:
            raise Refusal(
                "another job", f"the hub belongs to job {self._credentials.job!r}, but this member to job {join.job!r}"
            )
        if join.shape != self._settings.shape:
            raise Refusal(
                "another size",
                f"the hub expects {_describe(self._settings.shape)}, pod {join.member.pod} expects "
                f"{_describe(join.shape)}: {_counted_by(self._settings.shape, join.shape)} must be the same in all "
                "pods",
            )

    def _admit(self, connection: Connection, join: Join) -> None:
        self._attach(self._roll_call.admit(join), connection)
        self._begin_if_complete()
        if not self._seats:
            if not self._admitted:
                asyncio.get_running_loop().call_later(handshake.WAITING_AFTER, self._tell_admitted)
            self._admitted.append(connection)

    def _tell_admitted(self) -> None:
        """Tell members that have joined that they wait. If the gang is complete by then, they need not know."""
        if not self._seats:
            line = protocol.encode(handshake.waiting(self.missing()))
            hashed = digest(line)
            for connection in self._admitted:
                connection.send(line, hashed=hashed)
        self._admitted.clear()

    def _attach(self, seat: Seat, connection: Connection) -> None:
        """Use this connection for the member, in place of an earlier one."""
        seat.connection, seat.connected_at = connection, time.monotonic()
        connection.on_message = partial(self._on_message, seat)
        connection.on_ended = partial(self._on_ended, seat)

    def _begin(self, seats: Seats) -> None:
        """Welcome all members, and prepare the first attempt. Assumes that all members have joined."""
        self._seats.extend(seats)
        self._by_incarnation = {seat.incarnation: seat for seat in seats}
        self.gang = os.urandom(8).hex()
        self._welcomes = handshake.Welcomes(self.gang, Roster(tuple(seat.member for seat in seats)))
        for seat in seats:
            if seat is not self.own_seat:
                self._welcome(seat)
        self._attempts.prepare()

    def _welcome(self, seat: Seat) -> None:
        assert self._welcomes is not None
        if seat.connection is not None:
            line, hashed = self._welcomes.encode(self._attempts.number, seat.rank)
            seat.connection.send(*line, hashed=hashed)

    # ---- connections ---------------------------------------------------------------------------------------------

    def _connections(self) -> list[Connection]:
        seats = self._seats or self._roll_call.seats
        return [seat.connection for seat in seats if seat.connection is not None]

    def _heartbeat_line(self) -> bytes:
        return protocol.ALIVE if self._seats else protocol.encode(handshake.waiting(self.missing()))

    def _tell_unheard(self, connection: Connection) -> None:
        if self._seats and connection not in self._newcomers.connections:
            connection.send(protocol.encode(messages.plain("unheard")))

    def _on_message(self, seat: Seat, connection: Connection, message: Message) -> None:
        if self._seats and seat.connection is connection:
            self.handle(seat, message)
        elif not self._seats:
            raise Malformed("nothing is due before the welcome")

    def _on_ended(self, seat: Seat, connection: Connection) -> None:
        if connection.forged:
            self._refusals.add(FORGED, connection.peer)
        if seat.connection is not connection or self._closed:
            return  # the member has reconnected, or the hub is closed
        seat.connection = None
        if not self._seats:
            self._roll_call.release(seat)
            return
        seat.ended_at = connection.heard_at if connection.timed_out else time.monotonic()
        seat.timed_out = connection.timed_out
        if self.ending.cause:
            self.ending.after_leaving(seat)
            return
        if not seat.stopped:
            self._seen("peer_lost", seat.rank, seat.member.pod, connection.reason or "its connection has ended")
        if connection.reason:  # nothing was heard, or a message was malformed: the member will not reconnect
            self._lose(seat, seat.ended_at, connection.reason, silent=connection.timed_out)
            return
        within = self._settings.reconnect_within
        reason = f"its connection ended, and it did not reconnect within {within:g} s"
        asyncio.get_running_loop().call_later(within, self._lose, seat, seat.ended_at, reason)

    def _reconnect(self, connection: Connection, join: Join) -> None:
        seat = self._by_incarnation.get(join.incarnation)
        if seat is None and join.gang is None and self._may_grow(join):
            self._newcomers.hold(connection, join)
            connection.send(protocol.encode(handshake.waiting(self._missing_newcomers())))
            return
        if seat is None or seat is self.own_seat or join.gang not in (None, self.gang):
            if self._settings.elastic and self.ending.cause:  # a member that has left before the hub
                raise Refusal("", "this gang ends, and its hub takes members of the next one soon", retry=True)
            raise Refusal("a latecomer", f"the gang is complete and runs without pod {join.member.pod}")
        before = seat.connection
        self._attach(seat, connection)
        seat.ended_at, seat.timed_out = None, False
        if before is not None:
            before.abort("replaced")
        self._seen("peer_returned", seat.rank, seat.member.pod, "")
        self._welcome(seat)
        for message in filter(None, [*self._attempts.current_state(), *self.ending.current_state()]):
            connection.send(protocol.encode(message))
        self._attempts.on_reconnected()

    def _may_grow(self, join: Join) -> bool:
        """Return whether this member may wait until the gang grows. False if its pod replaces that of a member."""
        if not self._settings.elastic or self.ending.cause or self.ending.finished:
            return False
        is_trainer = join.member.role in TRAINS
        return is_trainer and self._roll_call.has_room(join.member) and self._newcomers.has_room(join, len(self._seats))

    def _missing_newcomers(self) -> MissingMembers:
        return MissingMembers(len(self._seats), self._settings.size, (), runs=True)

    def newcomers(self) -> int:
        """Return how many members wait until the gang grows."""
        return len(self._newcomers)

    def resize(self, what: str) -> None:
        """Stop the gang, so that its members and those that wait form a larger one."""
        if not self._attempts.ends_at_step:
            self._attempts.report(time.monotonic(), self._resized(what))

    async def resize_at_step(self, what: str) -> bool:
        """Do the same once all trainers have ended after the same step. Return whether they will."""
        return await self._attempts.stop_at_step(self._resized(what))

    def _resized(self, what: str) -> Cause:
        return Cause(CauseKind.RESIZED, None, self.own_seat.member.pod, what, Exit.PEER_LOST)

    def returning(self, *, without_lost: bool) -> int:
        """Return how many members should join the next gang: not those that got SIGTERM, but those that wait."""
        gone = sum(seat.told_to_stop or (without_lost and seat.lost) for seat in self._seats)
        return min(len(self._seats) - gone + len(self._newcomers), self._settings.size)

    def _lose(self, seat: Seat, ended_at: float, reason: str, silent: bool = False) -> None:
        """Report a member as lost, unless it has reconnected since `ended_at`."""
        if seat.ended_at != ended_at or seat.lost:
            return
        seat.lost = True
        cause = lost_member(self._seats.shape, seat.rank, seat.member.pod, reason, silent=silent)
        self._attempts.report(ended_at, cause)

    # ---- messages ------------------------------------------------------------------------------------------------

    @property
    def own_seat(self) -> Seat:
        """The seat of the hub's own member."""
        return self._roll_call.own

    def handle(self, seat: Seat, message: Message) -> None:
        """Handle a message of a member. The hub may have received the same message before."""
        if message["word"] == "unreached":
            self._cuts.on_unreached(seat, message)
            return
        if message["word"] == "stopped":
            self._on_stopped(seat)
        else:
            self._attempts.handle(seat, message)
        self._attempts.advance()

    def _broadcast(self, message: Message) -> None:
        line = protocol.encode(message)
        hashed = digest(line)
        for connection in self._connections():
            connection.send(line, hashed=hashed)
        self._tell_own_member(message)

    def _on_stopped(self, seat: Seat) -> None:
        """Check whether the others may leave. A member that leaves before a verdict counts as lost."""
        seat.stopped = True
        self.ending.after_leaving(seat)
        if not self._attempts.is_over:
            seat.lost = True
            cause = early_leaver(self._seats.shape, seat.rank, seat.member.pod)
            self._attempts.report(time.monotonic(), cause)

    async def survey(self, within: float) -> Mapping[int, MemberReport]:
        """Ask all members what their processes do. Return the answers that arrive within `within` seconds, by rank."""
        answers: asyncio.Future[Mapping[int, MemberReport]] = asyncio.get_running_loop().create_future()
        number = self._surveys.begin(
            within, lambda found: None if answers.done() else answers.set_result(found), to_file=False
        )
        try:
            return await answers
        finally:
            self._surveys.drop(number)

    # ---- the end -------------------------------------------------------------------------------------------------

    def dissolve(self, reason: str) -> None:
        """Send a refusal to all members that have joined, since this launcher is not the hub any more."""
        self._heartbeat.stop()
        self._roll_call.close()
        for connection in self._connections():
            connection.send(protocol.encode(handshake.refusal(reason)))
            connection.close()

    async def close(self, within: float) -> None:
        """Close `Attempts`, which decides on waiting reports. End each connection once its messages have arrived."""
        self._heartbeat.stop()
        self._roll_call.close()
        self._newcomers.dismiss("the gang has ended, and the next one takes new members")
        self._attempts.close()
        self._surveys.close()
        self.ending.close()
        self._closed = True
        await close_gracefully(self._connections(), within)


def _describe(shape: Shape) -> str:
    if not shape.pservers:
        return f"{shape.size} members"
    *others, last = [f"{shape.count(role)} {role_name(role)}s" for role in shape.roles]
    return f"{', '.join(others)} and {last}"


def _counted_by(*shapes: Shape) -> str:
    """Return the variables that set these shapes."""
    of_roles = (("LAUNCHER_PSERVERS", PSERVER), ("LAUNCHER_HETERS", HETER))
    used = [variable for variable, role in of_roles if any(role in shape.roles for shape in shapes)]
    *others, last = ["CONF_PADDLE_GRADIENT_NUM", *used]
    return f"{', '.join(others)} and {last}" if others else last
