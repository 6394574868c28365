"""`Gang`: what one launcher does in its gang, as the hub or as a member.

The event loop delivers each event in a callback of its own, perhaps before `join` has returned. An attempt has each of
these events at most once:

    Begin, Train
    Lead       on the hub only
    Restart    the next attempt follows

Collect may come at any time, once for each survey.

The gang ends with Finish, with Stop and later Finish, or with HubLost.

After a Stop, the member of rank `cause.rank`, the culprit, reports stopped and leaves. All other members wait for
Finish, which the hub sends when the culprit has left. If the kind of the cause is "stopped", the culprit may use its
whole grace period. So the caller must limit the wait. After a Stop with `rejoin`, every member reports stopped. The
hub then sends Finish when no process of the gang can still run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from launcher.gang import messages
from launcher.gang.connection import Connection
from launcher.gang.decisions import Decisions
from launcher.gang.ending import FAILURE_END_WITHIN
from launcher.gang.events import (
    Credentials,
    Event,
    GangSettings,
    HubLost,
    JoinFailed,
    MissingMembers,
    Progress,
    Stop,
    Verdict,
)
from launcher.gang.first_cause import first_cause, survivor_penalty
from launcher.gang.hub import Hub
from launcher.gang.link import Link, pause
from launcher.gang.listener import not_the_hub
from launcher.gang.lost import lost_member
from launcher.gang.own_reports import OwnReports
from launcher.gang.port import GangPort
from launcher.gang.protocol import Message
from launcher.model import Cause, CauseKind, Member, MemberReport, Roster, Start

_CLOSE_WITHIN = 0.9


class Gang:
    """The caller calls `listen`, then `join`, and then a `report_...` method for each event on this member.

    on_event: called with the decisions of the hub
    The hub alone calls these:
    complete: writes the mark of completion; called when all members have finished training. Raises NotComplete if they
        must train again, or another exception if the mark cannot be written.
    judge: takes the first cause of an attempt; returns the cause to send to all members, and the verdict. Never blocks.
    seen: called with `peer_lost` when the connection of a member has ended, and with `peer_returned` when the member
        has connected again. Further arguments: its rank, its pod, and the reason or "". If the member stays away, its
        loss is reported as a cause, too.
    newcomer: called when another member has begun to wait until an elastic gang grows
    prepare: takes what ended the last attempt, or None; returns the next start. Raises StartRefused, AlreadyComplete.
    """

    def __init__(
        self,
        settings: GangSettings,
        on_event: Callable[[Event], None],
        *,
        complete: Callable[[], Awaitable[None]],
        judge: Callable[[Cause], tuple[Cause, Verdict]],
        prepare: Callable[[Cause | None], Awaitable[Start]],
        seen: Callable[[str, int, str, str], None] = lambda event, rank, pod, why: None,
        newcomer: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._incarnation = os.urandom(8).hex()
        self._port = GangPort(settings, self._on_join)
        self.refusals = self._port.refusals
        self._next_try = 0.0
        self._hub: Hub | None = None
        self._link: Link | None = None
        self._missing: MissingMembers | None = None
        self._roster: Roster | None = None
        self.identity = ""  # of the gang, once it is complete
        self._reports = OwnReports(self._send)
        self._decisions = Decisions(on_event, self._reports, on_restart=self._on_restart, leave=self._leave)
        self._new_hub = partial(
            Hub,
            settings=settings,
            refusals=self._port.refusals,
            tell_own_member=self._decisions.handle_soon,
            complete=complete,
            judge=judge,
            prepare=prepare,
            seen=seen,
            newcomer=newcomer,
        )
        self._verdict_timer: asyncio.TimerHandle | None = None
        self.hub_died = False  # the connection to the hub ended, and the hub was not merely silent
        self._closed = False

    # ---- joining -------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Listen on the gang port, before it is known which launcher is the hub. Raise Failure if this fails."""
        await self._port.open()

    @property
    def port(self) -> int:
        return self._port.number

    async def join(
        self, me: Member, hub: tuple[str, int] | None, *, job: str, secret: bytes | None
    ) -> tuple[Roster, int]:
        """Return the complete roster and this member's rank. `hub` is the hub's host and port; None: this launcher.

        Raise JoinFailed if the hub refuses this member or cannot be reached, or if this launcher turns out not to be
        the hub. The caller must then find the peers again and join again.
        """
        await asyncio.sleep(max(self._next_try - time.monotonic(), 0))
        self._next_try = time.monotonic() + pause()
        credentials = Credentials(me, self._incarnation, job, secret)
        self._port.answer(credentials)
        if hub is None:
            self._roster, rank, self.identity = await self._join_as_hub(credentials)
        else:
            self._roster, rank, self.identity = await self._join_as_member(credentials, hub)
        self._reports.joined = True
        self._repeat_reports()
        self._port.check_next(credentials, self._roster, rank, self._send)
        return self._roster, rank

    async def _join_as_hub(self, credentials: Credentials) -> tuple[Roster, int, str]:
        hub = self._hub = self._new_hub(credentials)
        try:
            roster = await hub.wait_complete()
        except BaseException as error:
            self._missing = hub.missing()
            self._hub = None
            hub.dissolve(error.reason if isinstance(error, JoinFailed) else "the hub has left")
            raise
        return roster, hub.own_seat.rank, hub.gang

    async def _join_as_member(self, credentials: Credentials, hub: tuple[str, int]) -> tuple[Roster, int, str]:
        link = self._link = Link(
            credentials,
            self._settings,
            hub,
            self._port,
            on_message=self._decisions.handle,
            on_reconnected=self._repeat_reports,
            on_lost=self._on_hub_lost,
            parting_messages=self._reports.failed_messages,
        )
        try:
            welcome = await link.join()
        except BaseException:
            self._missing = link.missing or self._missing
            self._link = None
            link.drop()
            raise
        return welcome.roster, welcome.rank, welcome.gang

    def missing(self) -> MissingMembers | None:
        """Return which members are missing, now or at the end of the last join, or None if this is not known."""
        if self._hub:
            return self._hub.missing()
        return (self._link.missing if self._link else None) or self._missing

    def joined_pods(self) -> list[str]:
        return self._hub.joined_pods() if self._hub else []

    # ---- an elastic gang -----------------------------------------------------------------------------------------

    async def reaches(self, address: str) -> bool:
        """Return whether a launcher of this job answers at this address. Assumes that `join` was called."""
        return await self._port.reaches(address)

    def joined_addresses(self) -> list[str]:
        """On the hub, return the addresses of the members that have joined so far."""
        return self._hub.joined_addresses() if self._hub else []

    def newcomers(self) -> int:
        """Return how many members wait until the gang grows."""
        return self._hub.newcomers() if self._hub else 0

    def resize(self, what: str) -> None:
        """Stop the gang, so that all members and those that wait join a larger one. `what`: a sentence for the log."""
        if self._hub and self._roster:
            self._hub.resize(what)

    async def resize_at_step(self, what: str) -> bool:
        """Do the same once all trainers have ended after the same step. Return whether they will.

        Return False if not all trainers call `launcher.train.should_stop`.
        """
        return self._hub is not None and self._roster is not None and await self._hub.resize_at_step(what)

    def returning(self, cause: Cause, *, without_lost: bool) -> int | None:
        """Return how many members should join the next gang, or None before the join. Only the hub knows it exactly.

        cause: why this gang has ended
        """
        if self._roster is None:
            return None
        if self._hub:
            return self._hub.returning(without_lost=without_lost)
        is_gone = cause.kind is CauseKind.STOPPED or (without_lost and cause.kind is CauseKind.LOST)
        return len(self._roster.members) - is_gone

    def connected_peers(self) -> int:
        """Return how many other members this launcher is connected to."""
        return self._hub.connected_members() if self._hub else int(bool(self._link and self._link.is_connected))

    def _on_join(self, connection: Connection, message: Message) -> None:
        if self._hub is None:
            raise not_the_hub()
        self._hub.on_join(connection, message)

    # ---- reports of this member ----------------------------------------------------------------------------------

    def report_staged(self) -> None:
        """Report that configuration and shard are in the work directory."""
        self._reports.add(lambda: messages.plain("staged"))

    def report_serving(self, attempt: int = 0) -> None:
        """Report that every server of this member listens on all its ports."""
        self._reports.add(lambda: messages.of_attempt("serving", attempt), attempt)

    def report_progress(self, attempt: int, printed_at: float, report: Progress) -> None:
        """Report what trainers have printed, and when they printed the last line (time.monotonic())."""
        if attempt == self._reports.attempt:
            self._reports.replace("progress", lambda: messages.progress(attempt, time.monotonic() - printed_at, report))

    def report_collected(self, survey: int, report: MemberReport) -> None:
        """Report what the processes of this member do."""
        self._reports.replace("collected", lambda: messages.collected(survey, report))

    async def survey(self, within: float) -> Mapping[int, MemberReport] | None:
        """On the hub of a complete gang, ask all members what their processes do. Else, return None.

        The result has the answers that arrive in time, by rank.
        """
        if self._hub is None or self._roster is None or self._closed:
            return None
        return await self._hub.survey(self._settings.survey_within(within))

    def report_reached(self, attempt: int, step: int | None) -> None:
        """Report after Hold which step the trainers of this member have reached. None: they do not count steps."""
        self._stop_waiting_for_verdict()  # the hub waits until all have saved
        self._reports.replace("reached", lambda: messages.reached(attempt, step))

    def report_trained(self, attempt: int = 0) -> None:
        """Report that every trainer of this member has ended with exit code 0."""
        if attempt == self._reports.attempt:
            self._reports.trained = True
            self._reports.add(lambda: messages.of_attempt("trained", attempt), attempt)

    def report_ended(self, attempt: int) -> None:
        """Report, after a Restart, that all processes of earlier attempts have ended on this member."""
        self._reports.add(lambda: messages.of_attempt("ended", attempt), attempt)

    def report_failed(self, cause: Cause, died_at: float, attempt: int | None = None) -> None:
        """Report a failure at `died_at` (monotonic) in `attempt`, by default the current. Ignore earlier attempts."""
        if attempt in (None, self._reports.attempt):
            self._reports.add_failure(cause, died_at, attempt)
            self._await_verdict()

    def report_stopped(self) -> None:
        """Report, after a stop, that the processes of this member have ended."""
        self._reports.add(lambda: messages.plain("stopped"))

    def _repeat_reports(self) -> None:
        self._reports.repeat()
        self._stop_waiting_for_verdict()  # the hub has these reports now, and collects reports once more
        self._await_verdict()

    def _send(self, message: Message) -> None:
        if self._hub:
            self._hub.handle(self._hub.own_seat, message)
        elif self._link:
            self._link.send(message)

    def _await_verdict(self) -> None:
        if self._link and self._roster and self._reports.failures and self._verdict_timer is None:
            marking = self._settings.complete_within if self._reports.trained else 0  # the hub may be writing the mark
            within = self._settings.verdict_within + marking
            self._verdict_timer = asyncio.get_running_loop().call_later(within, self._stop_without_verdict)

    def _stop_waiting_for_verdict(self) -> None:
        if self._verdict_timer:
            self._verdict_timer.cancel()
            self._verdict_timer = None

    def _on_restart(self) -> None:
        self._stop_waiting_for_verdict()
        self._reports.repeat_failures()
        self._await_verdict()

    # ---- without the hub -----------------------------------------------------------------------------------------

    def _stop_without_verdict(self) -> None:
        """Stop because of this member's own failure, since the hub has sent no verdict in time."""
        if self._decisions.is_over:
            return
        cause = first_cause(self._reports.failures)[1]
        if survivor_penalty(cause) and self._link and self._link.time_out_if_cut_off():
            return  # the process has died because it lost a peer. That peer is the hub, which counts as lost now
        self._decisions.stop(Stop(cause, rejoin=self._settings.rejoins and cause.kind.restartable))

    def _on_hub_lost(self, reason: str, ended_at: float, silent: bool) -> None:
        self.hub_died = not silent
        run_time = self._settings.ends_within if silent and self._settings.rejoins else 0.0
        if self._decisions.is_over:
            if not self._decisions.finishes_later:
                self._decisions.finish(run_time)
            return
        assert self._roster is not None
        pod = self._roster.members[0].pod
        lost = lost_member(self._roster.shape, 0, pod, reason, silent=silent)
        if self._reports.trained and not self._reports.failures:
            self._decisions.lose_hub(HubLost(lost), run_time)
        else:
            rejoin = self._settings.rejoins and all(cause.kind.restartable for _, cause in self._reports.failures)
            cause = lost if rejoin else first_cause([*self._reports.failures, (ended_at, lost)])[1]
            self._decisions.stop(Stop(cause, rejoin))
            self._decisions.finish(run_time)

    def _leave(self) -> None:
        self._port.check_no_more()
        if self._link:
            self._link.leave()

    # ---- the end -------------------------------------------------------------------------------------------------

    async def wait_finished(self) -> None:
        """Wait until Finish is delivered or, after HubLost, until no process of the gang can still run."""
        await self._decisions.finished.wait()

    async def wait_others_ended(self) -> None:
        """On the hub, after a stop: wait until every other member has ended its processes, is lost, or is cut off."""
        if self._hub is not None:
            await self._hub.ending.wait_others_ended()

    def remaining_run_time(self) -> float:
        """After a finish or a stop, return for how many seconds at most a process of this gang can still run."""
        return FAILURE_END_WITHIN if self._hub is None else self._hub.ending.remaining_run_time()

    async def close(self) -> None:
        """Send the last messages, wait until they have arrived, and close all sockets. Takes at most about a second."""
        if self._closed:
            return
        self._closed = True
        self._stop_waiting_for_verdict()
        self._decisions.close()
        self._port.close()
        if self._hub:
            await self._hub.close(_CLOSE_WITHIN)
        if self._link:
            await self._link.close(_CLOSE_WITHIN)
