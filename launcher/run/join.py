"""Join a gang: from a configuration to the complete roster.

The steps are:

    peers    find the hub, or all live members
    record   read from the volume whether the job is complete or given up, and read the job's secret
    gang     join the hub. The roster that the hub sends has the rank of this member
    staging  copy configuration and shard, as soon as the rank is known (perhaps before the join)

`launcher.run.session` decides what follows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from launcher.base import files, shares
from launcher.base.aio import wait_within
from launcher.config import JobConfig
from launcher.data.staging import Copy, Staging
from launcher.discovery import ranks
from launcher.discovery.finder import FinderSettings
from launcher.errors import Exit, Failure
from launcher.gang import Gang, JoinFailed
from launcher.model import BOTH, HETER, TRAINS, Peers, Roster, Share, member_name
from launcher.run.earlier import EarlierCauses
from launcher.run.factories import REAL, Factories
from launcher.run.leader import Before, Leader, NotYet
from launcher.run.other_roles import OtherRoles
from launcher.run.restarts import MAX_ATTEMPTS
from launcher.run.volume import Volume
from launcher.store.failure_marks import FailureMarks, mark_name
from launcher.store.record import History, Record

log = logging.getLogger(__name__)

T = TypeVar("T")

_REPORT_EVERY = 30.0
_LOOK_EVERY = 1.0
_ASK_WITHIN = 3.0  # seconds: long enough on a busy node, and short, since other pods that end meanwhile fail the Job
_HUB_FIRST = 2.0  # seconds that members wait longer than the hub, so that the hub can tell them who is missing


@dataclass(frozen=True)
class Joined:
    """The complete gang that this member has joined.

    rank: the rank of this member
    gang: the identity of the gang
    """

    roster: Roster
    rank: int
    gang: str
    record: Record
    history: History


class Joining:
    """Join this member to a gang. Copy its data as soon as its rank is known."""

    def __init__(
        self,
        config: JobConfig,
        gang: Gang,
        *,
        before: Before | None = None,
        rejoin: bool = False,
        factories: Factories = REAL,
        earlier_causes: EarlierCauses | None = None,
    ) -> None:
        self._earlier_causes = earlier_causes or EarlierCauses()
        self._config = config
        self._volume = Volume(config)
        self._rejoin = rejoin
        self._gang = gang
        self._make_staging = factories.staging
        self._finder = factories.finder(finder_settings(config, rejoin=rejoin))
        self._deadline = 0.0
        self._rank: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._staging: Staging | None = None
        self._controller: str | None = None  # with roles, the identity of this role's pods
        self._leader: Leader | None = None  # None if number 0 always leads
        if any_member_leads(config):
            self._leader = Leader(config.output, self._volume, config.restarts.settle, before)
        self._other_roles: OtherRoles | None = None

    async def join(self) -> Joined | None:
        """Return the complete gang, or None if the job is complete already. Raises Failure."""
        self._deadline = self._next_deadline()
        await self._finder.start()
        await self._gang.listen()
        record = await self._open_record(await self._finder.identity())
        earlier = await self._volume(record.earlier)
        if await self._volume(earlier.is_complete):
            return None
        if others := await self._volume(record.completed_before):
            new = "this is a new job, which does not continue the earlier job"
            log.info(f"an earlier job of this name was complete ({others[-1]}): {new}")
        await self._refuse_without_progress(earlier)
        if not self._config.is_elastic:  # then the rank and the shards depend on who joins
            self._know_rank(self._config.discovery.rank)
        joining = self._find_and_join(record)
        found = await (self._other_roles.unless_it_fails(joining) if self._other_roles else joining)
        if found is None:
            return None
        roster, rank = found
        if self._controller:
            record = Record(self._config.output, ranks.joint_identity(roster))
        history = await self._volume(partial(record.history, self._config.shape))
        self._know_rank(rank)
        return Joined(roster, rank, self._gang.identity, record, history)

    async def stage(self, begun: Callable[[], None]) -> int:
        """Copy configuration and shard, as soon as the rank is known. Return the copied bytes. Raises Failure.

        begun: called when the copy begins
        """
        rank = await self._rank
        begun()
        config = self._config
        self._staging = self._make_staging(copies(config, rank), config.workdir, config.environment)
        return await self._staging.run()

    async def stage_share(self, share: Share) -> int:
        """Copy what a member of an elastic job needs now, and remove its other shards. Return the copied bytes.

        share: see `with_shards`
        """
        config = self._config
        self._staging = self._make_staging(copies_of_share(config, share), config.workdir, config.environment)
        return await self._staging.run()

    async def with_shards(self, share: Share) -> Share:
        """Return the share, with the number of shards that the volume has. Raises Failure if there are too few."""
        config = self._config
        if not config.job_folder or config.role not in TRAINS:
            return share
        return replace(share, shards=await self._volume(partial(shares.count, config.job_folder, config.trainers)))

    async def ask_about(self, pod: str) -> str:
        """Return what Kubernetes knows about a lost pod, or "" without an answer in 3 s. Works after `end`, too."""
        try:
            return await wait_within(self._finder.describe_peer(pod), _ASK_WITHIN)
        except (asyncio.TimeoutError, Failure):
            return ""

    async def end_discovery(self) -> None:
        """End the child processes that find peers. The caller must call this when the join is complete."""
        await self._finder.close()

    async def end(self) -> None:
        """End the child processes of the join and of the copy. The caller must cancel both tasks before this call."""
        await asyncio.gather(self._finder.close(), *([self._staging.close()] if self._staging else []))

    def _know_rank(self, rank: int | None) -> None:
        if rank is not None and not self._rank.done():
            self._rank.set_result(rank)

    async def _find_and_join(self, record: Record) -> tuple[Roster, int] | None:
        secret = await self._secret(record)
        found = await self._find(record)
        if not self._config.is_elastic:
            self._know_rank(found.rank)
        return await self._join(found, record, secret)

    async def _find(self, record: Record) -> Peers:
        """Find the peers. Pods without numbers keep the ranks that they had in the previous gang."""
        kept = await self._volume(record.kept_ranks) if self._config.members > 1 else {}
        found = await self._finder.find()
        members = self._finder.members()
        if self._leader or found.rank is not None or not kept or len(members) != self._config.members:
            return found
        roster = ranks.restore_roster(members, kept, self._config.shape)
        rank = next(member.rank for member in roster.members if member.uid == found.me.uid)
        hub = roster.members[0].address if rank else None
        return replace(found, me=replace(found.me, rank=rank), hub=hub, rank=rank)

    async def mark_failed_for_good(self, why: str) -> None:
        """With roles, mark this member as failed for good, so that the other roles do not wait for it."""
        if self._other_roles is not None:
            await self._other_roles.mark(why)

    async def count_failed_pod(self, why: str) -> None:
        """With roles, count this failed pod. If backoffLimit is exceeded, mark this role as failed for good."""
        limit = self._config.restarts.backoff_limit
        if self._other_roles is not None and limit is not None:
            await self._other_roles.count(limit, why)

    async def _open_record(self, identity: str | None) -> Record:
        config = self._config
        if config.role != BOTH:
            self._controller = identity
        record = Record(config.output, None if self._controller else identity, self._controller)
        if self._config.job_path:
            await self._volume(partial(_check_volume, self._config.job_path))
        await self._volume(record.open)
        if self._controller:
            number = None if config.discovery.rank is None else config.shape.number(config.discovery.rank)
            marks = FailureMarks(config.output, self._controller, mark_name(config.role, number, config.own_name))
            await self._volume(marks.begin)
            self._other_roles = OtherRoles(config.role, config.shape, self._finder, marks)
        return record

    async def _refuse_without_progress(self, record: Record) -> None:
        history = await self._volume(partial(record.history, self._config.shape))
        self._earlier_causes.add(history.causes())
        failed = history.without_progress
        if failed >= MAX_ATTEMPTS:
            raise Failure(
                Exit.GIVEN_UP,
                f"given up: {failed} attempts in a row ended before their first pass was done: fix the cause (see "
                f"{self._config.output}/job.json); then start a new job, or remove {record.attempts_file} and start "
                "this job again",
            )

    async def _secret(self, record: Record) -> bytes | None:
        if self._config.members == 1:
            return None
        if self._config.gang.secret_file:
            return await self._volume(partial(_read_secret, self._config.gang.secret_file))
        if self._config.job_folder:
            return await self._volume(record.secret)
        log.warning("no secret: any process that can reach the gang port can join: set LAUNCHER_SECRET_FILE")
        return None

    async def _join(self, found: Peers, record: Record, secret: bytes | None) -> tuple[Roster, int] | None:
        """Join, and wait until the gang is complete. If the hub refuses or does not answer, find the peers again.

        Return None if an elastic job has become complete, while this member waited for the job to grow.
        """
        reporting = asyncio.ensure_future(self._report_missing())
        reported = ""
        try:
            while True:
                if self._leader:
                    found = await self._choose_hub(self._leader, found, record)
                hub = (found.hub, self._config.gang.port) if found.hub else None
                trainers, controller = trainers_here(self._config), self._controller or ""
                stage = _stage(self._config, found.me.rank)
                me = replace(found.me, role=self._config.role, trainers=trainers, controller=controller, stage=stage)
                job = "" if controller else found.identity or ""
                joining: Awaitable[tuple[Roster, int]] = self._gang.join(me, hub, job=job, secret=secret)
                if self._leader and hub is None:
                    joining = self._unless_another_leads(self._leader, found, record, joining)
                try:
                    return await self._until_deadline(joining, _HUB_FIRST if hub else 0.0)
                except JoinFailed as again:
                    if self._leader:
                        self._leader.failed(found.hub, again)
                    if again.reason != reported:
                        log.info(f"looking for peers again: {again.reason}")
                    reported = again.reason
                    if self._config.is_elastic and await self._is_complete(record):
                        return None
                    found = await self._find_again(record)
        except asyncio.TimeoutError:
            raise self._timed_out() from None
        finally:
            reporting.cancel()

    async def _choose_hub(self, leader: Leader, found: Peers, record: Record) -> Peers:
        """Return the peers, with the hub of an elastic job. Wait until it is known which launcher leads."""
        leader.identity = self._controller or record.identity
        while True:
            all_are_here = len(self._finder.members()) == self._config.members
            try:
                return replace(found, hub=await leader.choose(found, all_are_here=all_are_here))
            except NotYet:
                if time.monotonic() >= self._deadline:
                    raise asyncio.TimeoutError from None
            await asyncio.sleep(_LOOK_EVERY)
            found = await self._find(record)

    async def _unless_another_leads(
        self, leader: Leader, found: Peers, record: Record, joining: Awaitable[tuple[Roster, int]]
    ) -> tuple[Roster, int]:
        """Return the result of a join as the hub. Raise JoinFailed if another launcher leads."""
        watching = asyncio.ensure_future(
            leader.watch(
                found.me.address,
                partial(self._find, record),
                self._gang.reaches,
                self._gang.joined_addresses,
                partial(self._is_complete, record),
            )
        )
        task = asyncio.ensure_future(joining)
        try:
            await asyncio.wait([task, watching], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                watching.result()
            return await task
        finally:
            watching.cancel()
            task.cancel()
            await asyncio.wait([task, watching])

    async def _find_again(self, record: Record) -> Peers:
        """Find the peers after a join has failed. After the deadline, name the members that had not joined."""
        try:
            return await self._find(record)
        except Failure as failure:
            if failure.code is not Exit.TIMED_OUT or self._gang.missing() is None:
                raise
            raise self._timed_out() from None

    def _timed_out(self) -> Failure:
        seconds, variable = patience(self._config, rejoin=self._rejoin)
        return Failure(Exit.TIMED_OUT, f"waited {seconds:g} s ({variable}) for the gang: {self._missing()}")

    async def _until_deadline(self, joining: Awaitable[T], more: float) -> T:
        """Wait until `more` seconds after the deadline, which may move. Raise asyncio.TimeoutError after that."""
        task = asyncio.ensure_future(joining)
        task.add_done_callback(
            lambda ended: ended.cancelled() or ended.exception()
        )  # avoids a warning, see wait_within
        try:
            while True:
                deadline = self._deadline
                done, _ = await asyncio.wait([task], timeout=max(deadline + more - time.monotonic(), 0))
                if done:
                    return task.result()
                if deadline == self._deadline:
                    raise asyncio.TimeoutError
        finally:
            task.cancel()

    def _next_deadline(self) -> float:
        """Return until when this member waits. In an elastic job, the hub may begin without those that are missing."""
        settle = self._config.restarts.settle if self._config.is_elastic else 0.0
        return time.monotonic() + patience(self._config, rejoin=self._rejoin)[0] + settle

    async def _is_complete(self, record: Record) -> bool:
        return await self._volume((await self._volume(record.earlier)).is_complete)

    async def _report_missing(self) -> None:
        """Log which members are missing: after each change, and at least every 30 s.

        While the gang runs without this member, move the deadline: a pass may take hours.
        """
        reported, reported_at = "", time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if (known := self._gang.missing()) and known.runs:
                self._deadline = self._next_deadline()
            missing = self._missing()
            if missing != reported or time.monotonic() - reported_at >= _REPORT_EVERY:
                log.info(f"waiting for the gang: {missing}")
                reported, reported_at = missing, time.monotonic()

    def _missing(self) -> str:
        missing = self._gang.missing()
        if missing is None:
            return f"the hub has not been reached; {self._finder.describe_missing(())}"
        absent = f" (missing: {self._config.shape.names(missing.ranks)})" if missing.ranks else ""
        known = self._finder.describe_missing(self._gang.joined_pods())
        return f"{missing.joined} of {missing.size} have joined{absent}; {known}"


def patience(config: JobConfig, *, rejoin: bool) -> tuple[float, str]:
    """Return how many seconds to wait for peers, and the variable that sets this number."""
    if rejoin:
        return config.restarts.rejoin_timeout, "LAUNCHER_REJOIN_TIMEOUT"
    return config.discovery.timeout, "LAUNCHER_PEER_TIMEOUT"


def finder_settings(config: JobConfig, *, rejoin: bool = False) -> FinderSettings:
    """Return the part of the configuration that a finder needs."""
    seconds, variable = patience(config, rejoin=rejoin)
    return FinderSettings(
        discovery=config.discovery.method,
        role=config.role,
        shape=config.shape,
        job_name=config.job_name,
        namespace=config.discovery.namespace,
        selector=config.discovery.selector,
        service=config.discovery.service,
        peers=config.discovery.peers,
        pod_name=config.pod_name,
        pod_ip=config.pod_ip,
        pod_uid=config.pod_uid,
        host_name=config.host_name,
        rank=config.discovery.rank,
        job_id=config.discovery.job_id,
        training_address=config.training_address,
        timeout=seconds,
        timeout_variable=variable,
        env=config.environment,
        any_leads=any_member_leads(config),
        needs_numbers=config.is_elastic and not any_member_leads(config),
    )


def any_member_leads(config: JobConfig) -> bool:
    """Return whether any trainer may lead. Without a volume only number 0 may, since two gangs could train at once."""
    return config.is_elastic and bool(config.job_folder)


def trainers_here(config: JobConfig) -> int:
    """Return how many trainers this member runs."""
    return config.trainers_per_node if config.role in TRAINS else 0


def _stage(config: JobConfig, rank: int | None) -> int:
    """Return the stage of this member if it is a heter worker, else 0.

    Raises Failure if the stage depends on the number of its pod, and the pod has no number.
    """
    if config.role != HETER:
        return 0
    if rank is None and len(config.stages) > 1:
        raise Failure(
            Exit.CONFIG,
            f"LAUNCHER_STAGE: {config.given['LAUNCHER_STAGE']!r}: a list has the stages of pods 0, 1, ..., but this "
            "pod has no number: use an Indexed Job or a StatefulSet, or set one stage",
        )
    return config.stage(config.shape.number(rank or 0))


def copies(config: JobConfig, rank: int | str | None) -> list[Copy]:
    """Return what to copy from the volume into the work directory, in the same order as in start.sh.

    rank: of this member; a text if it is not known; None: copy no shard
    """
    job = config.job_folder
    if job is None:
        return []
    needed = []
    if config.train_config_dir:
        source = os.path.join(job, config.train_config_dir)
        needed.append(Copy(source, config.workdir, "configuration", job))
    each = config.trainers_per_node
    for number in range(0 if rank is None else trainers_here(config)):
        assert rank is not None
        trainer = rank * each + number if isinstance(rank, int) else rank
        source = os.path.join(job, str(trainer), "data")
        what = f"shard of {member_name(config.role, rank)}" if each == 1 else f"shard of trainer {trainer}"
        needed.append(Copy(source, config.data_folder(number), what, job, config.trainers, config.allow_unused_shards))
    return needed


def copies_of_share(config: JobConfig, share: Share) -> list[Copy]:
    """Return what a member of an elastic job copies: the configuration, and all its shards."""
    needed = copies(config, None)
    for number in range(trainers_here(config) if share.shards else 0):
        data = config.data_folder(number)
        for shard in shares.share(share.shards, share.trainers, share.first + number):
            source = os.path.join(config.job_folder or "", str(shard), "data")
            what = f"shard {shard}"
            needed.append(
                Copy(source, os.path.join(data, str(shard)), what, config.job_folder or "", share.shards, data=data)
            )
    return needed


def _check_volume(path: str) -> None:
    """Raise Failure if the volume is not mounted. The job's folder may still be missing: a later step creates it."""
    if not files.is_folder(path):
        raise Failure(
            Exit.NO_INPUT,
            f"JOB_PATH: {path!r} is not a folder in this container: expected the mount point of the shared volume",
        )


def _read_secret(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            secret = file.read().strip()
    except OSError as error:
        raise Failure(
            Exit.CONFIG, f"LAUNCHER_SECRET_FILE: {path!r}: {error.strerror}: expected a file with the job's secret"
        ) from None
    if not secret:
        raise Failure(Exit.CONFIG, f"LAUNCHER_SECRET_FILE: {path!r}: expected a file that is not empty")
    return secret
