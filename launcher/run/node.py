"""What this member knows about itself and about the job, over all of its sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from launcher import paddle
from launcher.base.aio import run_in_thread, wait_within
from launcher.base.clock import utc_now
from launcher.base.log import set_name
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.gang import GangSettings, NotComplete
from launcher.model import (
    BOTH,
    FIRST,
    Cause,
    CauseKind,
    Member,
    Outcome,
    Plan,
    Roster,
    Shape,
    Snapshot,
    Start,
    describe_cause,
)
from launcher.processes.supervisor import Supervisor
from launcher.run import outcome
from launcher.run.join import Joined
from launcher.run.restarts import RestartPolicy
from launcher.run.resume import Generations
from launcher.run.volume import Volume
from launcher.store.journal import Journal
from launcher.store.lease import LeaseHolder
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from launcher.store.record import History, Record

log = logging.getLogger(__name__)

T = TypeVar("T")

_LAST_PHASES: Mapping[int, str] = {Exit.COMPLETE: "complete", Exit.STOPPED: "stopped"}
_HOLDS_FOR = 30.0  # a lease counts as held for this many seconds after a renewal; its hub renews a lease every 5 s
_MARK_TRIES, _MARK_AGAIN = 3, 1.0  # to write the mark; seconds between two tries
_MARK_SEEN_WITHIN = 3.0  # seconds to look for the hub's mark: a network volume may show it late


class Node:
    """Who this member is, what it runs, and what it keeps on the volume."""

    def __init__(
        self,
        config: JobConfig,
        flags: Sequence[str],
        command: Sequence[str],
    ) -> None:
        self._config = config
        self._volume = Volume(config)
        self._flags = flags
        self._command = command
        self.rank: int | None = config.discovery.rank
        self.name = config.own_name  # the join replaces it by the pod's name, which may differ from the host name
        self.first_plan = self._plan(None, None, FIRST)
        self.staged = asyncio.Event()  # configuration and shard are copied
        self.last_cause: Cause | None = None  # why the previous generation ended, if this pod saw its end
        self.roster: Roster | None = None
        self.journal: Journal | None = None  # None before the first join
        self.connected_peers: Callable[[], int] = lambda: 0  # in the latest gang
        self.output_at: float | None = None  # when a trainer of this member last printed something
        self.has_begun = False  # whether a generation has begun in this session
        self._phase, self._since = "", utc_now()
        self._generation: int | None = None
        self._attempts = 0  # how many generations this launcher has begun
        self._last_pass: int | None = None
        self._outcome: Outcome | None = None
        self._generations: Generations | None = None  # None until this member is the hub for the first time
        self._lease: LeaseHolder | None = None  # the same
        self._record: Record | None = None
        self._gang = ""  # the identity of the latest gang
        self._lose_lease: Callable[[Cause], None] = lambda cause: None

    def join(self, joined: Joined, settings: GangSettings, lose_lease: Callable[[Cause], None]) -> None:
        """Set rank and name from the roster of the complete gang. Prepare the files and the lease of this gang.

        lose_lease: called with the cause when the hub has lost its lease. Another gang may train from then on.
        """
        self._lose_lease = lose_lease
        config, roster, rank = self._config, joined.roster, joined.rank
        me = roster.members[rank]
        self.rank = rank
        self.name = me.pod
        self._record, self.roster, self._gang = joined.record, roster, joined.gang
        name = self.shape.name(rank)
        set_name(name)
        if self.shape.size > 1:
            of = f"{name} of {self.shape.count(config.role)}"
            log.info(f"the gang is complete: this is {of}, the hub is {roster.members[0].pod}")
        if rank == 0 and self._generations is None:
            self._lease = self._new_lease(joined.record.leases, settings) if joined.record.identity else None
            self._generations = self._new_generations(joined.record, joined.history, me, settings)
        if rank == 0 and self._lease:
            ends_within = settings.silence + settings.ends_within
            self._lease.me = LeaseOwner(joined.gang, str(joined.record.identity), me.pod, me.uid, ends_within)
        folder = joined.record.folder if joined.record.identity else None
        history = self.generations.history if self.generations else None
        self.journal = Journal(config.job_name or "", config.output, roster, me, history, folder, self.shape)
        self.has_begun = False
        self.enter("starting")

    @property
    def generations(self) -> Generations | None:
        """The generations of the job if this member is the hub, else None."""
        return self._generations if self.rank == 0 else None

    @property
    def shape(self) -> Shape:
        """The number of members of the gang, by role. Before the join, the number in the configuration."""
        return self.roster.shape if self.roster else self._config.shape

    def plan(self, start: Start) -> Plan:
        """Return the processes of one generation."""
        return self._plan(self.roster, self.rank, start)

    def begin(self, start: Start, supervisor: Supervisor) -> None:
        """Begin a generation: write its logs and its status to the folder of this member."""
        assert self.journal is not None
        after = "" if start.resume is None else f", after pass {start.resume}"
        cause = describe_cause(self.last_cause, self.shape) if self.last_cause else ""
        because = f", because {' '.join(cause.split())}" if cause else ""
        mark = f"generation {start.generation}, pod {self.name}{after}{because}"  # its first line in each log
        supervisor.set_log_folder(self.journal.folder, mark)
        self.has_begun = True
        self._attempts += 1
        self._generation, self._last_pass = start.generation, start.resume
        self.enter("starting")
        self._summarize()

    def passed(self, number: int) -> None:
        """Record that a pass is complete."""
        self._last_pass = number
        self._write_status()
        if self.generations:
            self.generations.passed()

    def end(self, result: Outcome) -> None:
        """Record the outcome, even if no generation has begun."""
        self.has_begun = True
        self._outcome = result
        self.enter(_LAST_PHASES.get(result.code, "failed"))
        self._summarize()

    def enter(self, phase: str) -> None:
        """Enter a phase. No other code changes the phase."""
        self._phase, self._since = phase, utc_now()
        self._write_status()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self._phase,
            self._since,
            self._generation,
            size=self.shape.size if self.roster else None,
            restarts=max(0, self._attempts - 1),
            last_pass=self._last_pass,
            output_age=None if self.output_at is None else time.monotonic() - self.output_at,
            peers=self.connected_peers(),
            holds_lease=self._lease is not None and self._lease.is_held,
            outcome=self._outcome,
        )

    def _write_status(self) -> None:
        """Write status.json if a generation has begun. Before that, another gang may still train into the folder."""
        if self.journal and self.has_begun:
            self.journal.write_status(self.snapshot())

    def cause(self, kind: CauseKind, what: str, code: int) -> Cause:
        """Return a cause with this member as the member at fault."""
        return Cause(kind, self.rank, self.name, what, code)

    async def release_folder(self, within: float | None) -> None:
        """Stop renewing the lease. Then release it, unless `within` is None.

        within: the gang's last process ends at most this many seconds after this call; None if that is not known
        """
        if self._lease is not None:
            await self._lease.stop_renewing()
        if within is None or self._record is None or not self._record.identity:
            return
        try:
            await self._volume(partial(self._record.leases.release, self._gang, within))
        except Failure as failure:
            log.info(failure.message)

    async def another_trains(self) -> bool:
        """Return whether another gang holds and renews the lease. If so, this gang must not write files."""
        if self._record is None or not self._record.identity:
            return False
        try:
            lease = await self._volume(self._record.leases.latest)
        except Failure:
            return False
        if lease is None or lease.is_released or lease.holder.gang == self._gang:
            return False
        return lease.age < _HOLDS_FOR

    async def explain_end(self, generation: int, cause: Cause) -> None:
        """Replace the recorded cause of a generation, if the hub is gone and this member reports in its place."""
        if self._record is None or cause.rank != 0 or not outcome.stands_for(cause, self.rank):
            return
        try:
            await self._volume(partial(self._record.explain, generation, cause, self.shape))
        except Failure as failure:
            log.info(failure.message)

    async def mark_complete(self) -> None:
        """Check the last pass, then write the mark of completion. Raises NotComplete, or Failure without the mark."""
        assert self.generations is not None
        assert self._record is not None
        if flaw := await self.generations.last_pass_flaw():
            raise NotComplete(self.cause(CauseKind.VOLUME, flaw, Exit.CANNOT_WRITE))
        tries = _MARK_TRIES
        while True:
            try:
                await self._volume(self._record.mark_complete)
                return
            except Failure:
                tries -= 1
                if not tries:
                    raise
            await asyncio.sleep(_MARK_AGAIN)

    async def is_complete(self) -> bool:
        """Return whether the volume has the mark of completion.

        The caller asks this if the hub is lost after training.
        """
        assert self._record is not None
        deadline = time.monotonic() + _MARK_SEEN_WITHIN
        while self._record.identity and (left := deadline - time.monotonic()) > 0:
            try:
                if await wait_within(run_in_thread(self._record.is_complete), left):
                    return True
            except (asyncio.TimeoutError, Failure):
                break
            await asyncio.sleep(0.2)
        return False

    def _plan(self, roster: Roster | None, rank: int | None, start: Start) -> Plan:
        return paddle.plan(self._config, self._flags, self._command, roster, rank, start)

    def _new_generations(self, record: Record, history: History, me: Member, settings: GangSettings) -> Generations:
        config = self._config
        saves = paddle.saves(config, self._flags, self._command)
        if saves is None and config.restarts.max_restarts:
            log.info("this job cannot resume from a saved pass: each start trains from the beginning (docs/resume.md)")
        sees_passes = self.first_plan.shows_passes
        policy = RestartPolicy(
            config.restarts.max_restarts,
            history.without_progress,
            sees_passes=sees_passes,
            sees_saves=saves is not None and saves.every_pass,
            has_identity=bool(record.identity),
            rejoins=config.rejoins,
            forgets=config.role != BOTH and not config.job_path,
            stalled_within=settings.stalled_within,
        )
        return Generations(
            policy,
            saves,
            record,
            history,
            self._lease,
            sees_passes=sees_passes,
            output=config.output,
            pod=me.pod,
            written=self._summarize,
            from_volume=self._volume,
        )

    def _new_lease(self, leases: LeaseFiles, settings: GangSettings) -> LeaseHolder:
        return LeaseHolder(
            leases,
            silence=settings.silence,
            patience=self._config.discovery.timeout,
            from_volume=self._volume,
            lost=lambda cause: self._lose_lease(cause),
        )

    def _summarize(self) -> None:
        if self.journal and self.has_begun:
            self.journal.write_summary(self._outcome)
