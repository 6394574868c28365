"""The attempts of a gang, on its hub: when one begins, trains, completes or fails, and what follows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from launcher.base.aio import wait_within
from launcher.errors import Exit, Failure
from launcher.gang import messages
from launcher.gang.ending import Ending
from launcher.gang.events import AlreadyComplete, GangSettings, NotComplete, OtherGang, StartRefused, Verdict
from launcher.gang.first_cause import first_cause, survivor_penalty
from launcher.gang.protocol import Malformed, Message
from launcher.gang.seats import Seat, Seats
from launcher.gang.stall import StallDetector
from launcher.gang.steps import AgreedStep
from launcher.gang.survey import Surveys
from launcher.model import Cause, CauseKind, Start

log = logging.getLogger(__name__)


@dataclass(eq=False)
class AttemptState:
    """What the hub knows about one attempt."""

    number: int
    previous_cause: Cause | None = None  # why the previous attempt failed; None for the first attempt
    said: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # by word: the ranks that sent it
    reports: list[tuple[float, Cause]] = field(default_factory=list)  # time (monotonic) and cause of each failure
    preparing: asyncio.Task[None] | None = None
    start: Start | None = None
    leading: bool = False
    training: bool = False

    def messages(self, stall: float) -> list[Message | None]:
        return [
            messages.restart(self.number, self.previous_cause) if self.previous_cause else None,
            messages.begin(self.number, self.start) if self.start else None,
            messages.train(self.number, stall) if self.training else None,
        ]


class Attempts:
    """Take each step for which all members are ready. Choose the first cause of a failure, and act on it.

    seats: the seats of all members in rank order; empty until the roster is complete
    broadcast: sends a message to all members
    For the other arguments see `Hub` and `Gang`.
    """

    def __init__(
        self,
        settings: GangSettings,
        seats: Seats,
        ending: Ending,
        surveys: Surveys,
        *,
        broadcast: Callable[[Message], None],
        tell_own_member: Callable[[Message], None],
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], tuple[Cause, Verdict]],
        prepare: Callable[[Cause | None], Awaitable[Start]],
    ) -> None:
        self._settings = settings
        self._seats = seats
        self._ending = ending
        self._broadcast = broadcast
        self._tell_own_member = tell_own_member
        self._complete = complete
        self._judge = judge
        self._prepare_start = prepare
        self._staged: set[int] = set()
        self._attempt = AttemptState(0)
        self._agreed = AgreedStep(0, settings, seats, broadcast)
        self._saving: list[asyncio.Task[None]] = []  # each waits until all trainers have saved
        self._surveys = surveys
        self._stall = StallDetector(
            settings,
            surveys,
            lambda: seats.shape,
            lambda cause: self.report(time.monotonic(), cause),
            lambda: any(seat.is_cut_off(settings) for seat in seats),
        )
        self._collecting: asyncio.TimerHandle | None = None  # set while reports of failures are collected
        self._completing: asyncio.Task[None] | None = None

    @property
    def number(self) -> int:
        return self._attempt.number

    def current_state(self) -> list[Message | None]:
        """Return the messages that tell a reconnected member the state of this attempt."""
        attempt = self._attempt.messages(self._settings.reported_stall)
        return [*attempt, *self._agreed.messages(), *self._surveys.current_messages()]

    # ---- what members report -------------------------------------------------------------------------------------

    def handle(self, seat: Seat, message: Message) -> None:
        """Handle a report of a member. The hub may have received the same report before."""
        match message["word"]:
            case "staged":
                self._staged.add(seat.rank)
            case "serving" | "trained" | "ended" as word:
                if messages.read_attempt(message) == self._attempt.number:
                    self._attempt.said[word].add(seat.rank)
                    if word == "trained" and seat.member.trainers:
                        self._stall.on_trained()
            case "reached":
                if messages.read_attempt(message) == self._attempt.number:
                    self._agreed.on_reached(seat, message)
            case "progress":
                self._stall.on_progress(seat.rank, message)
            case "collected":
                self._surveys.on_collected(seat.rank, message)
            case "failed":
                self._on_failed(seat, message)
            case _:
                raise Malformed("unknown word")

    def _on_failed(self, seat: Seat, message: Message) -> None:
        cause, age = messages.read_failed(message)
        seat.told_to_stop = seat.told_to_stop or cause.kind is CauseKind.STOPPED
        if cause.rank is None and cause.kind is CauseKind.STOPPED:  # sent before the welcome
            cause = replace(cause, rank=seat.rank)
        if cause.rank is not None and self._settings.elastic:  # it may be the rank of this member in an earlier gang
            cause = replace(cause, rank=seat.rank)
        if messages.read_attempt(message) != self._attempt.number:
            return
        if cause.kind is CauseKind.STOPPED and self._may_agree:
            self._saving.append(asyncio.get_running_loop().create_task(self._save_before(cause)))
        else:
            self.report(time.monotonic() - age, cause)

    # ---- a step after which all trainers save and end ----------------------------------------------------------------

    @property
    def ends_at_step(self) -> bool:
        """Whether all trainers save now, and end."""
        return self._agreed.cause is not None

    @property
    def _may_agree(self) -> bool:
        return bool(self._settings.elastic) and self._attempt.training and not self.is_over

    async def stop_at_step(self, cause: Cause) -> bool:
        """Agree on a step, if all trainers count steps. Once all trainers have ended, the gang stops by `cause`."""
        return self._may_agree and await self._agreed.agree(cause)

    async def _save_before(self, cause: Cause) -> None:
        """A member was told to stop: let all trainers save, for at most half of its grace period, then report this."""
        attempt = self._attempt
        if await self.stop_at_step(cause):
            await asyncio.sleep(self._settings.grace / 2)
        if attempt is self._attempt:
            self.report(time.monotonic(), cause)

    def advance(self) -> None:
        """Take each step for which all members are ready: prepare, lead, train, complete. Take a step only once."""
        attempt = self._attempt
        if attempt.reports or self._ending.cause:
            return
        if self._all(attempt.said["ended"]) and attempt.preparing is None:
            self.prepare()
        if attempt.start is None:
            return
        if self._all(self._staged) and not attempt.leading:
            attempt.leading = True
            self._tell_own_member(messages.of_attempt("lead", attempt.number))
        if self._all(self._staged) and self._all(attempt.said["serving"]) and not attempt.training:
            attempt.training = True
            self._stall.watch(attempt.number)
            self._broadcast(messages.train(attempt.number, self._settings.reported_stall))
        if self._all(attempt.said["trained"]) and self._agreed.cause and not self._completing:
            self.report(time.monotonic(), self._agreed.cause)
        elif self._all(attempt.said["trained"]) and not self._completing:
            self._stall.stop()
            self._completing = asyncio.get_running_loop().create_task(self._mark_and_finish())

    def _all(self, ranks: set[int]) -> bool:
        return len(ranks) == len(self._seats)

    # ---- an attempt begins ---------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Prepare the current attempt, then begin it. Assumes that no process of an earlier attempt runs."""
        self._attempt.preparing = asyncio.get_running_loop().create_task(self._prepare_and_begin(self._attempt))

    async def _prepare_and_begin(self, attempt: AttemptState) -> None:
        try:
            start = await self._prepare_start(attempt.previous_cause)
            begin = messages.begin(attempt.number, start)
        except StartRefused as refused:
            self._stop_if_current(attempt, refused.cause)
        except OtherGang as other:
            if attempt is self._attempt and not self._ending.cause:
                pod = self._seats[0].member.pod
                self._stop(Cause(CauseKind.RESIZED, None, pod, str(other), Exit.PEER_LOST), rejoin=True)
        except AlreadyComplete:
            if attempt is self._attempt and not self._ending.cause:
                self._ending.finish()
        except Exception as error:
            what = f"a fault of the launcher itself before a start, please report it: {error!r}"
            own = self._seats[0]  # of the hub's own member
            self._stop_if_current(attempt, Cause(CauseKind.LAUNCHER, own.rank, own.member.pod, what, Exit.MASKED))
        else:
            if attempt is self._attempt and not self._ending.cause:
                attempt.start = start
                self._broadcast(begin)
                self.advance()

    def _stop_if_current(self, attempt: AttemptState, cause: Cause) -> None:
        if attempt is self._attempt and not self._ending.cause:
            self._stop(cause)

    def _restart(self, cause: Cause) -> None:
        """Tell all members to end their processes. The next attempt begins once all processes have ended."""
        if self._attempt.preparing is not None:
            self._attempt.preparing.cancel()
        attempt = self._attempt = AttemptState(self._attempt.number + 1, cause)
        self._agreed = AgreedStep(attempt.number, self._settings, self._seats, self._broadcast)
        self._broadcast(messages.restart(attempt.number, cause))
        asyncio.get_running_loop().call_later(self._settings.restart_within, self._stop_unless_ended, attempt)

    def _stop_unless_ended(self, attempt: AttemptState, were_cut_off: bool = False) -> None:
        """Stop the gang if a member has not ended its processes in time."""
        if (
            attempt.preparing is not None
            or attempt.previous_cause is None
            or attempt is not self._attempt
            or self._ending.cause
        ):
            return
        loop = asyncio.get_running_loop()
        missing = [seat for seat in self._seats if seat.rank not in attempt.said["ended"]]
        # A member that is cut off has not received the restart. It reconnects, or it counts as lost after `silence`.
        if missing and all(seat.is_cut_off(self._settings) for seat in missing):
            loop.call_later(self._settings.heartbeat_every, self._stop_unless_ended, attempt, True)
            return
        if were_cut_off:  # a member has only just received the restart: it gets as much time as the other members had
            loop.call_later(self._settings.restart_within, self._stop_unless_ended, attempt)
            return
        names, within = self._seats.shape.names([seat.rank for seat in missing]), self._settings.restart_within
        what = f"{attempt.previous_cause.what}; not started again: {names} did not end within {within:g} s"
        self._stop(replace(attempt.previous_cause, what=what))

    # ---- completion ----------------------------------------------------------------------------------------------

    async def _mark_and_finish(self) -> None:
        """Write the mark of completion, then finish. Ignore failures meanwhile, since the training is complete.

        Without the mark the job is not complete: its next start would not know that all members have trained.
        """
        try:
            await wait_within(self._complete(), self._settings.complete_within)
        except NotComplete as refused:
            self._completing = None  # failures count again
            self.report(time.monotonic(), refused.cause)
        except Exception as error:
            self._stop(self._judged(_not_marked(self._seats[0], error, self._settings.complete_within))[0])
        else:
            self._ending.finish()

    # ---- failures ------------------------------------------------------------------------------------------------

    def report(self, died_at: float, cause: Cause) -> None:
        """Take a report of a failure. The first cause is chosen once the other reports have had time to arrive."""
        if self.is_over:
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
        """Choose the first cause and act on it. Wait if a member disconnected before the cause, and may be lost."""
        if self._ending.cause or not self._attempt.reports or self._collecting:
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
        """End the connections to all members that are cut off. Return whether there were such members.

        Called when a process has died with a code of processes that lose a peer. Gloo waits 30 s for a lost peer, less
        than `silence`. So the member that is cut off may be the first cause.
        """
        connections = [seat.connection for seat in self._seats if seat.connection]
        every = self._settings.heartbeat_every
        return bool([connection for connection in connections if connection.time_out_if_cut_off(every)])

    def on_reconnected(self) -> None:
        """Collect reports once more: the member repeats its reports, and a repeated report may be the first cause."""
        if self._attempt.reports and not self._ending.cause:
            self._collect_reports()

    @property
    def is_over(self) -> bool:
        """Whether failures do not count any more, since the gang stops or its training is complete."""
        return bool(self._completing or self._ending.cause or self._ending.finished)

    def close(self) -> None:
        """If reports still wait, choose the first cause and stop the gang. No attempt begins after this call."""
        self._stall.stop()
        for task in self._saving:
            task.cancel()
        if self._attempt.preparing is not None:
            self._attempt.preparing.cancel()
        if self._seats and self._attempt.reports and not self._ending.cause:
            self._stop(self._judged(first_cause(self._attempt.reports)[1])[0])

    def _stop(self, cause: Cause, *, rejoin: bool = False) -> None:
        if self._attempt.preparing is not None:
            self._attempt.preparing.cancel()
        self._ending.stop(cause, rejoin=rejoin)

    def _judged(self, cause: Cause) -> tuple[Cause, Verdict]:
        try:
            return self._judge(cause)
        except Exception as error:
            log.info(f"the launcher could not judge the first cause, and reports it unchanged: {error!r}")
            return cause, Verdict.STOP


def _not_marked(own: Seat, error: Exception, within: float) -> Cause:
    """Return the cause for a mark of completion that could not be written. `own`: the seat of the hub's own member."""
    why, code = repr(error), int(Exit.IO_FAILED)
    if isinstance(error, Failure):
        why, code = error.message, error.code
    elif isinstance(error, asyncio.TimeoutError):
        why = f"the volume has not answered for {within:g} s"
    what = f"all members have trained, but the mark of completion is missing: {why}"
    return Cause(CauseKind.VOLUME, own.rank, own.member.pod, what, code)
