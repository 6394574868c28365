"""The hub decides when the gang begins, trains, restarts, stops and finishes. Members only report."""

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
from launcher.gang import handshake, messages, protocol
from launcher.gang.connection import Connection, Heartbeat, close_gracefully
from launcher.gang.events import AlreadyComplete, Credentials, GangSettings, MissingMembers, StartRefused, Verdict
from launcher.gang.first_cause import first_cause, survivor_penalty
from launcher.gang.handshake import Hello
from launcher.gang.listener import Refusal
from launcher.gang.protocol import Malformed, Message
from launcher.gang.seats import RollCall, Seat
from launcher.gang.stall import StallDetector
from launcher.model import Cause, CauseKind, Roster, Shape, Start

log = logging.getLogger(__name__)

FAILURE_END_WITHIN = 2.0  # seconds in which processes end after a failure, if they need not save anything


@dataclass(eq=False)
class AttemptState:
    """What the hub knows of one attempt."""

    number: int
    previous_cause: Cause | None = None  # why the attempt before it failed; None for the first one
    said: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # by message: who sent it
    reports: list[tuple[float, Cause]] = field(default_factory=list)  # failures, with their times of death
    preparing: asyncio.Task[None] | None = None
    start: Start | None = None
    leading: bool = False
    training: bool = False


class Hub:
    """Collect the members until the roster is complete, then decide for the gang.

    tell_own_member: called with each message of the hub to its own member, which has no connection
    For the other arguments see `Gang`.
    """

    def __init__(
        self,
        credentials: Credentials,
        settings: GangSettings,
        *,
        tell_own_member: Callable[[Message], None],
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], tuple[Cause, Verdict]],
        prepare: Callable[[Cause | None], Awaitable[Start]],
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._tell_own_member = tell_own_member
        self._complete = complete
        self._judge = judge
        self._prepare = prepare
        self._roll_call = RollCall(credentials, settings)
        self._heartbeat = Heartbeat(
            settings.heartbeat_every, settings.silence, self._connections, self._heartbeat_line, self._tell_unheard
        )
        self._heartbeat.start()

        self._seats: list[Seat] = []  # in rank order, once the roster is complete
        self._by_incarnation: dict[str, Seat] = {}
        self.gang = ""  # the identity of the gang, once the roster is complete
        self._welcomes: handshake.Welcomes | None = None
        self._staged: set[int] = set()
        self._attempt = AttemptState(0)
        self._stall = StallDetector(settings, self._broadcast, lambda cause: self._report(time.monotonic(), cause))
        self._collecting: asyncio.TimerHandle | None = None  # set while reports of failures are collected
        self._completing: asyncio.Task[None] | None = None
        self._cause: Cause | None = None  # why the gang was stopped
        self._rejoin = False  # whether the members join a new gang after the stop
        self._stopped_at = 0.0
        self._finished = False
        self._finish_timer: asyncio.TimerHandle | None = None
        self.others_have_ended = asyncio.Event()  # after the stop: every member that is heard has ended its processes
        self._closed = False

    # ---- joining -------------------------------------------------------------------------------------------------

    async def wait_complete(self) -> Roster:
        """Wait until the roster is complete, and return it.

        Raise JoinFailed if a member with a lower address tries to join: that member must be the hub.
        """
        if seats := self._roll_call.complete():
            self._begin(seats)
        await self._roll_call.full
        return Roster(tuple(seat.member for seat in self._seats))

    def missing(self) -> MissingMembers:
        return self._roll_call.missing()

    def joined_pods(self) -> list[str]:
        return [seat.member.pod for seat in self._roll_call.seats]

    def on_hello(self, connection: Connection, hub_nonce: str, message: Message) -> None:
        """Verify the hello on a new connection, and take the connection over. Raise Refusal if it is not accepted."""
        hello = self._verified(hub_nonce, message)
        if self._seats:
            self._reconnect(connection, hub_nonce, hello)
        else:
            self._admit(connection, hub_nonce, hello)

    def _verified(self, hub_nonce: str, message: Message) -> Hello:
        version = handshake.hello_version(message)
        if version != protocol.VERSION:
            other = version if isinstance(version, int) else "unknown"
            raise Refusal(
                "another version",
                f"the hub uses version {protocol.VERSION} of the gang protocol, this member uses version {other}: "
                "run the same image in all pods",
            )
        hello = handshake.read_hello(message)
        roles = self._settings.pservers or hello.shape.pservers
        if hello.job != self._credentials.job:
            raise Refusal(
                "another job", f"the hub is of job {self._credentials.job!r}, this member of job {hello.job!r}"
            )
        if not handshake.verify_hello(hello, self._credentials.secret, hub_nonce):
            raise Refusal("wrong proof", "the secret of this member is not the one of the hub")
        if hello.shape != self._settings.shape:
            raise Refusal(
                "another size",
                f"the hub expects {_describe(self._settings.shape)}, pod {hello.member.pod} expects "
                f"{_describe(hello.shape)}: CONF_PADDLE_GRADIENT_NUM{' and LAUNCHER_PSERVERS' if roles else ''} "
                "must be the same in all pods",
            )
        return hello

    def _admit(self, connection: Connection, hub_nonce: str, hello: Hello) -> None:
        seat = self._roll_call.admit(hello)
        self._attach(seat, connection, hub_nonce, hello)
        connection.send(protocol.encode(handshake.waiting(self.missing())))
        if seats := self._roll_call.complete():
            self._begin(seats)

    def _attach(self, seat: Seat, connection: Connection, hub_nonce: str, hello: Hello) -> None:
        """Use this connection for the member, in place of an earlier one."""
        seat.connection, seat.hub_nonce, seat.member_nonce = connection, hub_nonce, hello.nonce
        connection.line_limit = protocol.KNOWN_PEER_LIMIT
        connection.on_message = partial(self._on_message, seat)
        connection.on_ended = partial(self._on_ended, seat)

    def _begin(self, seats: list[Seat]) -> None:
        """Welcome all members, and prepare the first attempt. Assumes that all members have joined."""
        self._seats = seats
        self._by_incarnation = {seat.incarnation: seat for seat in seats}
        self.gang = os.urandom(8).hex()
        self._welcomes = handshake.Welcomes(self.gang, Roster(tuple(seat.member for seat in seats)))
        for seat in seats:
            if seat is not self.own_seat:
                self._welcome(seat)
        self._prepare_attempt()

    def _welcome(self, seat: Seat) -> None:
        assert self._welcomes is not None
        if seat.connection is not None:
            nonces = seat.hub_nonce, seat.member_nonce
            line = self._welcomes.encode(self._attempt.number, seat.rank, self._credentials.secret, *nonces)
            seat.connection.send(line)

    # ---- connections ---------------------------------------------------------------------------------------------

    def _connections(self) -> list[Connection]:
        seats = self._seats or self._roll_call.seats
        return [seat.connection for seat in seats if seat.connection is not None]

    def _heartbeat_line(self) -> bytes:
        return protocol.ALIVE if self._seats else protocol.encode(handshake.waiting(self.missing()))

    def _tell_unheard(self, connection: Connection) -> None:
        if self._seats:
            connection.send(protocol.encode(messages.plain("unheard")))

    def _on_message(self, seat: Seat, connection: Connection, message: Message) -> None:
        if self._seats and seat.connection is connection:
            self.handle(seat, message)
        elif not self._seats:
            raise Malformed("nothing is due before the welcome")

    def _on_ended(self, seat: Seat, connection: Connection) -> None:
        if seat.connection is not connection or self._closed:
            return  # the member has reconnected, or the hub is closed
        seat.connection = None
        if not self._seats:
            self._roll_call.release(seat)
            return
        seat.ended_at = connection.heard_at if connection.timed_out else time.monotonic()
        seat.timed_out = connection.timed_out
        if self._cause:
            self._after_leaving(seat)
            return
        if connection.reason:  # nothing was heard, or a message was malformed: the member will not reconnect
            self._lose(seat, seat.ended_at, connection.reason, silent=connection.timed_out)
            return
        within = self._settings.reconnect_within
        reason = f"its connection ended and it did not return within {within:g} s"
        asyncio.get_running_loop().call_later(within, self._lose, seat, seat.ended_at, reason)

    def _reconnect(self, connection: Connection, hub_nonce: str, hello: Hello) -> None:
        seat = self._by_incarnation.get(hello.incarnation)
        if seat is None or seat is self.own_seat or hello.gang not in (None, self.gang):
            raise Refusal("a latecomer", f"the gang is complete and runs without pod {hello.member.pod}")
        before = seat.connection
        self._attach(seat, connection, hub_nonce, hello)
        seat.ended_at, seat.timed_out = None, False
        if before is not None:
            before.abort("replaced")
        self._welcome(seat)
        for message in self._current_state():
            connection.send(protocol.encode(message))
        if self._attempt.reports and not self._cause:
            self._collect_reports()  # the member repeats its reports now: one may be the first cause

    def _current_state(self) -> list[Message]:
        """Return the messages that tell a reconnected member the state of the gang."""
        attempt = self._attempt
        state = [
            attempt.previous_cause and messages.restart(attempt.number, attempt.previous_cause),
            attempt.start and messages.begin(attempt.number, attempt.start),
            attempt.training and messages.train(attempt.number, self._settings.stall),
            self._stall.current_message(),
            self._cause and messages.stop(self._cause, self._rejoin),
            self._finished and messages.finish(),
        ]
        return [message for message in state if message]

    def _lose(self, seat: Seat, ended_at: float, reason: str, silent: bool = False) -> None:
        """Report a member as lost, unless it has reconnected since `ended_at`."""
        if seat.ended_at != ended_at or seat.lost:
            return
        seat.lost = True
        name = self._settings.shape.name(seat.rank)
        what = (
            f"{name} (pod {seat.member.pod}) was lost without a word: {reason}; was its pod deleted, out of memory, or "
            f"is its node gone? `kubectl describe pod {seat.member.pod}` may tell"
        )
        self._report(ended_at, Cause(CauseKind.LOST, seat.rank, seat.member.pod, what, Exit.PEER_LOST, silent=silent))

    # ---- messages ------------------------------------------------------------------------------------------------

    @property
    def own_seat(self) -> Seat:
        """The seat of the hub's own member."""
        return self._roll_call.own

    def handle(self, seat: Seat, message: Message) -> None:
        """Handle a message of a member. The hub may have received the same message before."""
        match message["word"]:
            case "staged":
                self._staged.add(seat.rank)
            case "serving" | "trained" | "ended" as word:
                if messages.read_attempt(message) == self._attempt.number:
                    self._attempt.said[word].add(seat.rank)
            case "progress":
                self._stall.on_progress(seat.rank, message)
            case "collected":
                self._stall.on_collected(seat.rank, message)
            case "stopped":
                seat.stopped = True
                self._after_leaving(seat)
                self._report_early_leaver(seat)
            case "failed":
                cause, age = messages.read_failed(message)
                seat.told_to_stop = seat.told_to_stop or cause.kind is CauseKind.STOPPED
                if cause.rank is None and cause.kind is CauseKind.STOPPED:  # sent before the welcome
                    cause = replace(cause, rank=seat.rank)
                if messages.read_attempt(message) == self._attempt.number:
                    self._report(time.monotonic() - age, cause)
            case _:
                raise Malformed("unknown word")
        self._advance()

    def _advance(self) -> None:
        """Take each step for which all members are ready: prepare, lead, train, complete. Take a step only once."""
        attempt = self._attempt
        if attempt.reports or self._cause:
            return
        if self._all(attempt.said["ended"]) and attempt.preparing is None:
            self._prepare_attempt()
        if attempt.start is None:
            return
        if self._all(self._staged) and not attempt.leading:
            attempt.leading = True
            self._tell_own_member(messages.of_attempt("lead", attempt.number))
        if self._all(self._staged) and self._all(attempt.said["serving"]) and not attempt.training:
            attempt.training = True
            self._stall.watch(attempt.number)
            self._broadcast(messages.train(attempt.number, self._settings.stall))
        if self._all(attempt.said["trained"]) and not self._completing:
            self._stall.stop()
            self._completing = asyncio.get_running_loop().create_task(self._mark_and_finish())

    def _all(self, ranks: set[int]) -> bool:
        return len(ranks) == self._settings.size

    def _broadcast(self, message: Message) -> None:
        line = protocol.encode(message)
        for connection in self._connections():
            connection.send(line)
        self._tell_own_member(message)

    # ---- attempts ------------------------------------------------------------------------------------------------

    def _prepare_attempt(self) -> None:
        self._attempt.preparing = asyncio.get_running_loop().create_task(self._prepare_and_begin(self._attempt))

    async def _prepare_and_begin(self, attempt: AttemptState) -> None:
        """Prepare an attempt, then begin it. Assumes that all processes of earlier attempts have ended."""
        try:
            start = await self._prepare(attempt.previous_cause)
        except StartRefused as refused:
            self._stop_if_current(attempt, refused.cause)
        except AlreadyComplete:
            if attempt is self._attempt and not self._cause:
                self._finish()
        except Exception as error:
            what = f"a fault of the launcher itself before a start, please report it: {error!r}"
            own = self.own_seat
            self._stop_if_current(attempt, Cause(CauseKind.LAUNCHER, own.rank, own.member.pod, what, Exit.MASKED))
        else:
            if attempt is self._attempt and not self._cause:
                attempt.start = start
                self._broadcast(messages.begin(attempt.number, start))
                self._advance()

    def _stop_if_current(self, attempt: AttemptState, cause: Cause) -> None:
        if attempt is self._attempt and not self._cause:
            self._stop(cause)

    def _restart(self, cause: Cause) -> None:
        """Tell all members to end their processes. The next attempt begins once all processes have ended."""
        if self._attempt.preparing is not None:
            self._attempt.preparing.cancel()
        attempt = self._attempt = AttemptState(self._attempt.number + 1, cause)
        self._broadcast(messages.restart(attempt.number, cause))
        asyncio.get_running_loop().call_later(self._settings.restart_within, self._stop_unless_ended, attempt)

    def _stop_unless_ended(self, attempt: AttemptState, were_cut_off: bool = False) -> None:
        """Stop the gang if a member has not ended its processes in time."""
        if (
            attempt.preparing is not None
            or attempt.previous_cause is None
            or attempt is not self._attempt
            or self._cause
        ):
            return
        loop = asyncio.get_running_loop()
        missing = [seat for seat in self._seats if seat.rank not in attempt.said["ended"]]
        # A member that is cut off has not received the restart. It reconnects, or it counts as lost after the silence.
        if missing and all(seat.is_cut_off(self._settings) for seat in missing):
            loop.call_later(self._settings.heartbeat_every, self._stop_unless_ended, attempt, True)
            return
        if were_cut_off:  # a member has received the restart only now: it gets as much time as the other members had
            loop.call_later(self._settings.restart_within, self._stop_unless_ended, attempt)
            return
        names, within = self._settings.shape.names([seat.rank for seat in missing]), self._settings.restart_within
        what = f"{attempt.previous_cause.what}; not started again: {names} did not end within {within:g} s"
        self._stop(replace(attempt.previous_cause, what=what))

    # ---- completion ----------------------------------------------------------------------------------------------

    async def _mark_and_finish(self) -> None:
        """Write the mark of completion, then finish. Failures meanwhile are ignored: the training is complete."""
        marking = asyncio.ensure_future(self._complete())
        marking.add_done_callback(self._after_marking)
        await asyncio.wait([marking], timeout=self._settings.complete_within)
        if not marking.done():
            within = f"{self._settings.complete_within:g} s"
            log.info(f"the mark of completion is not written after {within}: the job finishes without it")
        self._finish()

    def _after_marking(self, marking: asyncio.Future[None]) -> None:
        if not marking.cancelled() and (error := marking.exception()):
            log.info(f"the mark of completion could not be written: {error}")

    def _finish(self, after: float = 0.0) -> None:
        if not self._finished:
            self._finished = True
            self._broadcast(messages.finish(after))

    # ---- failures ------------------------------------------------------------------------------------------------

    def _report(self, died_at: float, cause: Cause) -> None:
        if self._completing or self._cause or self._finished:
            return
        self._stall.stop()
        reports = self._attempt.reports
        first = not reports
        if all(cause != known for _, known in reports):
            reports.append((died_at, cause))
        if first:
            self._collect_reports()
        else:
            self._decide()

    def _collect_reports(self) -> None:
        if self._collecting:
            self._collecting.cancel()
        self._collecting = asyncio.get_running_loop().call_later(self._settings.reports_within, self._after_collecting)

    def _after_collecting(self) -> None:
        self._collecting = None
        self._decide()

    def _decide(self) -> None:
        """Choose the first cause and act on it. Wait if a member that may be lost disconnected before the cause."""
        if self._cause or not self._attempt.reports or self._collecting:
            return
        died_at, cause = first_cause(self._attempt.reports)
        if survivor_penalty(cause) and self._time_out_cut_off_members():
            return  # each member that was cut off is reported as lost at once
        latest = died_at + survivor_penalty(cause)
        if any(seat.ended_at is not None and not seat.lost and seat.ended_at <= latest for seat in self._seats):
            return  # the member reconnects or is lost within a second: then the hub decides again
        cause, verdict = self._judged(cause)
        if verdict is Verdict.RESTART and any(seat.lost for seat in self._seats):
            self._stop(cause, rejoin=self._settings.rejoins)
        elif verdict is Verdict.RESTART:
            self._restart(cause)
        else:
            self._stop(cause, rejoin=verdict is Verdict.REJOIN)

    def _time_out_cut_off_members(self) -> bool:
        """End the connections to all members that are cut off. Return whether there were any.

        Called when a process has died as processes do that lose a peer. Gloo waits only 30 s for a lost peer, which is
        less than `silence`, so the cut-off member may be the first cause.
        """
        connections = [seat.connection for seat in self._seats if seat.connection]
        every = self._settings.heartbeat_every
        return bool([connection for connection in connections if connection.time_out_if_cut_off(every)])

    def _stop(self, cause: Cause, *, rejoin: bool = False) -> None:
        self._cause, self._rejoin = cause, rejoin
        self._stopped_at = time.monotonic()
        if self._attempt.preparing is not None:
            self._attempt.preparing.cancel()
        self._broadcast(messages.stop(cause, rejoin))
        if rejoin:
            self._finish_when_all_have_ended()
            return
        culprit = self._culprit()
        if culprit is None or culprit.ended_at is not None or culprit.stopped:
            self._finish()
        elif cause.kind is not CauseKind.STOPPED:  # a member that was told to stop may use its whole grace period
            asyncio.get_running_loop().call_later(self._settings.leave_within, self._finish)

    def _judged(self, cause: Cause) -> tuple[Cause, Verdict]:
        try:
            return self._judge(cause)
        except Exception as error:
            log.info(f"judging the first cause failed, so it is not changed: {error!r}")
            return cause, Verdict.STOP

    def _culprit(self) -> Seat | None:
        """Return the seat of the member whose failure is the first cause. None if the cause names no member."""
        rank = self._cause.rank if self._cause else None
        return self._seats[rank] if rank is not None and rank < len(self._seats) else None

    def _after_leaving(self, seat: Seat) -> None:
        """After the stop: check what a member's end allows. It has sent stopped, or its connection has ended."""
        if self._cause is None:
            return
        if not self.others_are_ending():
            self.others_have_ended.set()
            if self._rejoin:
                self._finish_when_all_have_ended()
        if not self._rejoin and seat is self._culprit():
            self._finish()

    def _report_early_leaver(self, seat: Seat) -> None:
        """Report a member as lost if it stops before the hub sends a verdict: it takes part in no further attempt."""
        if self._cause or self._finished or self._completing:
            return
        seat.lost = True
        name = f"{self._settings.shape.name(seat.rank)} (pod {seat.member.pod})"
        what = f"{name} received no decision from the hub in time, and left"
        self._report(time.monotonic(), Cause(CauseKind.LOST, seat.rank, seat.member.pod, what, Exit.PEER_LOST))

    def _finish_when_all_have_ended(self) -> None:
        """Finish once no process of the gang can run any more. Unreachable members end theirs within a known time."""
        if self._finish_timer:
            self._finish_timer.cancel()
        left = self._remaining_run_time(self._seats)
        if left > 0:
            self._finish_timer = asyncio.get_running_loop().call_later(left, self._finish)
        else:
            self._finish()

    def others_are_ending(self) -> bool:
        """Return whether another member that the hub still hears has not ended its processes yet."""
        return any(seat.is_ending(self._settings) for seat in self._seats)

    def remaining_run_time(self) -> float:
        """After a finish or a stop, return for how many seconds at most a process of the gang can still run."""
        ending = 0.0
        if self._cause and self.others_are_ending():
            orderly = self._cause.kind is CauseKind.STOPPED or any(
                seat.told_to_stop and not seat.stopped for seat in self._seats
            )
            grace = self._stopped_at + self._settings.grace - time.monotonic() if orderly else 0.0
            ending = FAILURE_END_WITHIN + max(grace, 0.0)
        unreachable = [seat for seat in self._seats if seat.is_unreachable(self._settings)]
        return max(ending, self._remaining_run_time(unreachable))

    def _remaining_run_time(self, seats: list[Seat]) -> float:
        return max((seat.remaining_run_time(self._settings) for seat in seats), default=0.0)

    # ---- the end -------------------------------------------------------------------------------------------------

    def dissolve(self, reason: str) -> None:
        """Refuse all members that have joined, since this launcher is not the hub any more."""
        self._heartbeat.stop()
        for connection in self._connections():
            connection.send(protocol.encode(handshake.refusal(reason)))
            connection.close()

    async def close(self, within: float) -> None:
        """Decide on the reports that are not decided yet, then end all connections once every message has arrived."""
        self._heartbeat.stop()
        self._stall.stop()
        if self._attempt.preparing is not None:
            self._attempt.preparing.cancel()
        if self._seats and self._attempt.reports and not self._cause:
            self._stop(self._judged(first_cause(self._attempt.reports)[1])[0])
        if self._cause:
            self._finish(self.remaining_run_time() if self._rejoin else 0.0)
        if self._finish_timer:
            self._finish_timer.cancel()
        self._closed = True
        await close_gracefully(self._connections(), within)


def _describe(shape: Shape) -> str:
    return f"{shape.trainers} trainers and {shape.pservers} pservers" if shape.pservers else f"{shape.size} members"
