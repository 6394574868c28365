"""What this member knows about itself and about the job, over all of its sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
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
    Numbers,
    Outcome,
    Plan,
    Roster,
    Shape,
    Share,
    Snapshot,
    Start,
    describe_cause,
)
from launcher.processes.supervisor import Supervisor
from launcher.run import outcome
from launcher.run.about import about
from launcher.run.earlier import EarlierCauses
from launcher.run.join import Joined
from launcher.run.log_lines import LogLines
from launcher.run.page import Page
from launcher.run.restarts import RestartPolicy
from launcher.run.resume import Generations
from launcher.run.samples import Samples
from launcher.run.volume import Volume
from launcher.store import sizes
from launcher.store.events import Timeline, fold_job, fold_member
from launcher.store.journal import Journal
from launcher.store.json_fields import cause_fields, place_fields
from launcher.store.lease import LeaseHolder
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from launcher.store.record import History, Record

log = logging.getLogger(__name__)

T = TypeVar("T")

PHASES = (
    *("joining", "starting", "training", "serving", "trained", "restarting", "gathering", "finishing", "ending"),
    *("complete", "stopped", "failed"),
)
_LAST_PHASES: Mapping[int, str] = {Exit.COMPLETE: "complete", Exit.STOPPED: "stopped"}
_MOST_PASSES = 100  # that one read of the output may have
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
        lines: LogLines | None = None,
        make_page: Callable[..., Page] | None = None,
    ) -> None:
        self._config = config
        self._volume = Volume(config)
        self._flags = flags
        self._command = command
        self.rank: int | None = None if config.is_elastic else config.discovery.rank  # then only the gang decides it
        self.name = config.own_name  # the join replaces it by the pod's name, which may differ from the host name
        self.share: Share | None = None  # of an elastic job: the shards that are in the work directory
        self.first_plan = self._plan(None, None, FIRST)
        self.staged = asyncio.Event()  # configuration and shard are copied
        self.last_cause: Cause | None = None  # why the previous generation ended, if this pod saw its end
        self.earlier_causes = EarlierCauses()
        self.roster: Roster | None = None
        self.journal: Journal | None = None  # None before the first join
        self.connected_peers: Callable[[], int] = lambda: 0  # in the latest gang
        self.numbers = Numbers()  # what a trainer of this member last printed, in this generation
        self._samples = Samples()
        self._make_page = make_page if config.monitoring.report else None
        self._page: Page | None = None  # on the hub, once a generation has ended
        self.lines = lines or LogLines(config.monitoring)
        self.lines.place = self._place
        self.output_at: float | None = None  # when a trainer of this member last printed something
        self._events, self._job_events = Timeline(fold_member), Timeline(fold_job)
        self.job = config.job_name or ""
        self._phase, self._since = "joining", utc_now()
        self._generation: int | None = None
        self.log_traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)  # see Supervisor.log_traffic
        self.staged_bytes = 0
        self.returning: int | None = None  # on the hub of an elastic job: how many members should join the next gang
        self.agreed_step: int | None = None  # after which all trainers of this generation save and end
        self._attempts = 0  # how many generations this launcher has begun
        self._resizes = 0  # how many of these followed a change of size
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
        self.earlier_causes.add(joined.history.causes())
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
            address = me.address if config.is_elastic else ""
            self._lease.me = LeaseOwner(joined.gang, str(joined.record.identity), me.pod, me.uid, ends_within, address)
        folder = joined.record.folder if joined.record.identity else None
        history = self.generations.history if self.generations else None
        if self.journal:
            self.journal.close()
        self.journal = Journal(
            config.job_name or "",
            config.output,
            roster,
            me,
            history,
            folder,
            self.shape,
            self._events,
            self._job_events,
            about(config, self._command),
        )
        self.enter("starting")

    def _place(self) -> Mapping[str, object]:
        """Return job, role, rank, pod and generation of this member, for log lines. Any thread may call this."""
        of = place_fields(self.rank, self.shape)
        return {"job": self.job, **of, "pod": self.name, "generation": self._generation}

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
        self.journal.open()
        self._attempts += 1
        self._generation, self._last_pass = start.generation, start.resume
        self._note_size(start)
        self.numbers = Numbers()
        passes = paddle.passes(self._config, self._flags, self._command)
        self.record("generation", after_pass=start.resume, passes=passes)
        self.enter("starting")
        self._summarize()
        if self._attempts > 1 and (page := self._page_of_job()):
            page.render()

    def _note_size(self, start: Start) -> None:
        """Log a change of size of the job, and count it: it is no restart."""
        before, now, cause = start.trainers_before, self.shape.trainers, self.last_cause
        agreed, self.agreed_step = self.agreed_step, None
        if not self._config.is_elastic or before is None or before == now:
            return
        log.info(f"the job {'grows' if now > before else 'shrinks'} from {before} to {now} trainers")
        if cause and sizes.is_resize(cause.kind, before, now):
            self._resizes += 1
        if self.generations and cause and cause.kind is not CauseKind.RESIZED and not agreed:
            self._note_repeated_pass(start.resume)

    def _note_repeated_pass(self, resume: int | None) -> None:
        """On the hub, say that the new number of trainers begins with a pass that was interrupted."""
        saved = paddle.saves(self._config, self._flags, self._command)
        number = None if saved is None else saved.first if resume is None else resume + 1
        what = "the training begins again" if number is None else f"pass {number} was interrupted, and is repeated"
        log.info(f"{what}: each sample counts once, since all trainers of the new size train on their shards")
        self._job_events.add("pass_repeated", generation=self._generation, **{"pass": number})

    def record_newcomers(self, count: int) -> None:
        """On the hub, record how many members wait until the job grows."""
        self._job_events.add("newcomers", generation=self._generation, count=count)

    def end_generation(self, cause: Cause) -> None:
        """Record why the present generation has ended, since another generation follows."""
        self.last_cause = cause
        if self._generation is not None:
            text = " ".join(describe_cause(cause, self.shape).split())
            self.earlier_causes.add({self._generation: text})

    def earlier_ends(self, end: str) -> list[str]:
        """Return why each generation before the last one has ended, one line each. `end`: how this member ends."""
        return self.earlier_causes.lines(self._generation, end)

    def passed(self, number: int) -> None:
        """Record that a pass is complete, and each pass before it that was read together with it."""
        for each in self._passes_to(number):
            self.record("pass", **{"pass": each})
            if self.generations:
                self._job_events.add("pass", generation=self._generation, **{"pass": each})
        self._last_pass = number
        self._samples.take_next()  # the numbers of this pass may come after its end
        if self.generations:
            self.generations.passed()

    def _passes_to(self, number: int) -> range:
        """Return this pass, and the passes before it that are not recorded yet. Only v0 logs each pass, in order."""
        if not self.first_plan.shows_passes:
            return range(number, number + 1)
        saved = paddle.saves(self._config, self._flags, self._command)
        first = self._last_pass + 1 if self._last_pass is not None else saved.first if saved else number
        return range(max(min(first, number), number - _MOST_PASSES), number + 1)

    def staged_all(self, copied: int) -> None:
        """Record that configuration and shards are in the work directory. `copied`: how many bytes were copied."""
        self.record("staging_ended", bytes=copied)
        self.staged_bytes += copied
        self.staged.set()

    def saw(self, numbers: Numbers) -> None:
        """Record numbers that a trainer has printed. The timeline gets samples of them."""
        self.numbers = numbers
        if self._samples.is_due(time.monotonic()):
            self.record("numbers", **asdict(numbers))

    def end(self, result: Outcome) -> None:
        """Record the outcome, even if no generation has begun."""
        if self.journal:
            self.journal.open()
        self._outcome = result
        cause = cause_fields(result.cause, self.shape)
        self.record("ended", exit_code=int(result.code), first_cause=cause)
        self.enter(_LAST_PHASES.get(result.code, "failed"))
        self._summarize()

    def enter(self, phase: str) -> None:
        """Enter a phase. No other code changes the phase."""
        self._phase, self._since = phase, utc_now()
        self.record("phase", phase=phase)

    def record(self, event: str, **fields: object) -> None:
        """Add an event of this member to its timeline, and write its status. See docs/events.md for the events."""
        self._events.add(event, generation=self._generation, **fields)
        if self.journal:
            self.journal.write_status()

    def record_warning(self, text: str) -> None:
        self.record("warning", text=text.removeprefix("warning: "))

    def record_peer(self, event: str, rank: int, pod: str, why: str) -> None:
        """Add an event about another member: on the hub to the job's timeline, else to this member's timeline."""
        timeline = self._job_events if self.generations else self._events
        peer = {**place_fields(rank, self.shape), "pod": pod}
        timeline.add(event, generation=self._generation, peer=peer, why=why or None)

    @property
    def phase(self) -> str:
        return self._phase

    def is_last_pass(self, number: int) -> bool:
        """Return whether this was the last pass. False if the number of passes is not known."""
        total = paddle.passes(self._config, self._flags, self._command) or self.numbers.passes
        return bool(total) and number + 1 >= (total or 0)

    @property
    def has_begun(self) -> bool:
        """Whether this member may write to the output: a generation has begun in this session, or the job has ended."""
        return self.journal is not None and self.journal.is_open

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self._phase,
            self._since,
            self._generation,
            size=self.shape.size if self.roster else None,
            restarts=max(0, self._attempts - 1 - self._resizes),
            last_pass=self._last_pass,
            output_age=None if self.output_at is None else time.monotonic() - self.output_at,
            peers=self.connected_peers(),
            lease_age=self._lease.age if self._lease and self._lease.is_held else None,
            outcome=self._outcome,
        )

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
        shards = self.share.shards if self.share else 0
        return paddle.plan(self._config, self._flags, self._command, roster, rank, start, shards)

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
            is_elastic=config.is_elastic,
        )

    def _new_lease(self, leases: LeaseFiles, settings: GangSettings) -> LeaseHolder:
        return LeaseHolder(
            leases,
            silence=settings.silence,
            patience=self._config.discovery.timeout,
            from_volume=self._volume,
            lost=self._lost_lease,
        )

    def _page_of_job(self) -> Page | None:
        """Return the page of the job, if this member may write it now."""
        if self._page is None and self._make_page and self.rank == 0:
            self._page = self._make_page(self._config.output, self._config.environment, self._flush)
        return self._page if self.rank == 0 and self.journal and self.journal.is_open else None

    def _flush(self, within: float) -> bool:
        return self.journal is None or self.journal.flush(within)

    async def write_last_files(self, within: float) -> None:
        """Write all files, and the page of the job. After that, write nothing: another gang may use the folder."""
        if self.journal is None:
            return
        deadline = time.monotonic() + within
        await run_in_thread(self.journal.flush, within)
        if page := self._page_of_job():
            await page.finish(deadline - time.monotonic())
        self.journal.close()

    def _lost_lease(self, cause: Cause) -> None:
        self._job_events.log.hold()
        self._lose_lease(cause)

    def _summarize(self) -> None:
        if self.journal:
            self.journal.write_summary(self._outcome)
