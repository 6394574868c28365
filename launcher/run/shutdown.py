"""End a launcher: end the processes, wait until the member at fault has left, and write the last files.

All steps have time limits, since a volume may stall.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable

from launcher.base.aio import run_in_thread, wait_within
from launcher.config import JobConfig
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.gang import Finish, Stop
from launcher.model import Cause, CauseKind, Outcome
from launcher.run import backoff_limit, outcome
from launcher.run.node import Node
from launcher.run.session import FAILURE_GRACE, FLUSH_WITHIN, Session
from launcher.run.signals import Signals
from launcher.store import json_fields, unjoined

log = logging.getLogger(__name__)

_LEAVE_WITHIN = 1.5  # seconds to wait for the member at fault to leave; on the hub, for all other members to end


async def shut_down(
    decision: Stop | Finish, config: JobConfig, node: Node, session: Session, signals: Signals
) -> Outcome:
    """End this member, and return its outcome."""
    signals.on_stop = lambda: None  # this launcher stops already
    if isinstance(decision, Finish):
        result = await _finish(config, node, session, signals)
    else:
        result = await _stop(decision.cause, config, node, session, signals)
    await _leave(result, config, node, session)
    return result


async def _finish(config: JobConfig, node: Node, session: Session, signals: Signals) -> Outcome:
    """End all processes, since all members have finished training."""
    session.attempt.start_no_more()
    node.enter("finishing")
    await session.end_children(config.stop_grace)
    session.gang.report_stopped()
    return outcome.outcome_of(None, node.rank, told_to_stop=signals.stop_requested.done(), shape=node.shape)


async def _stop(cause: Cause, config: JobConfig, node: Node, session: Session, signals: Signals) -> Outcome:
    """End this member of an incomplete job.

    The other members wait until the member at fault has left, since Kubernetes blames the first pod that fails.
    """
    session.attempt.start_no_more()
    node.enter("ending")
    orderly = cause.kind is CauseKind.STOPPED or signals.stop_requested.done()
    ending = session.end_children(config.stop_grace if orderly else FAILURE_GRACE)
    cause, _ = await asyncio.gather(session.explained(cause), ending)
    session.gang.report_stopped()
    if session.joined and cause.rank != node.rank:
        await _until_finish(session)
    if not outcome.is_blamed(cause, node.rank):
        await _until_others_end(config, session, signals)
    return outcome.outcome_of(
        cause,
        node.rank,
        told_to_stop=signals.stop_requested.done(),
        shape=node.shape,
        alone=backoff_limit.other_role_is_over(config, cause),
    )


async def _until_finish(session: Session) -> None:
    try:
        await wait_within(session.gang.wait_finished(), _LEAVE_WITHIN)
    except asyncio.TimeoutError:
        pass  # this member leaves now, although the member at fault has not left in time


async def _until_others_end(config: JobConfig, session: Session, signals: Signals) -> None:
    """On the hub, wait until all other members have ended. Then the hub can release its lease without a delay."""
    left = signals.grace_left(config.stop_grace) if signals.stop_requested.done() else _LEAVE_WITHIN
    others: asyncio.Future[None] = asyncio.ensure_future(session.gang.wait_others_ended())
    await asyncio.wait([others, signals.kill_requested], timeout=left, return_when=asyncio.FIRST_COMPLETED)
    others.cancel()


async def _leave(result: Outcome, config: JobConfig, node: Node, session: Session) -> None:
    """Report the outcome to the gang, to Kubernetes and to the other role, and write it to the volume."""
    if node.generations:
        node.generations.stop_looking()
        if result.cause is None and session.joined:
            node.generations.complete()
    may_run_for = _may_run_for(result, node, session)
    supervisor = session.attempt.supervisor
    if node.journal is None:
        supervisor.set_log_folder(_folder_without_rank(config, session), f"pod {config.own_name}, never joined")
    elif node.has_begun or not await _answer_in_time(node.another_trains()):
        session.attempt.place_early_logs()
        node.end(result)
    earlier = node.earlier_ends(result.text)
    message = outcome.termination_message(result, earlier)
    summary = f"exit code {result.code}: {result.text}"
    marks = []
    if result.code in FOR_GOOD:
        marks.append(session.joining.mark_failed_for_good(summary))
    elif backoff_limit.counts_pod(config, result.code):
        marks.append(session.joining.count_failed_pod(summary))
    last_steps = [
        session.gang.close(),
        *([session.attempt.explain_end(result.cause)] if result.cause and result.cause.kind is CauseKind.LOST else []),
        supervisor.close(FLUSH_WITHIN),
        *([_write_unjoined_end(config, result, node)] if node.journal is None else []),
        _write_termination_message(config, message),
        _leave_volume(node, may_run_for),
        *marks,
    ]
    await asyncio.wait([asyncio.ensure_future(step) for step in last_steps], timeout=FLUSH_WITHIN + 0.5)
    for line in earlier:
        log.info(line)
    log.info(summary)  # the last line of the log, after the lines of all steps


async def _write_termination_message(config: JobConfig, message: bytes) -> None:
    try:
        await run_in_thread(outcome.write_termination_message, config.termination_log, message)
    except Failure:  # no thread can be started: write without one, since the file is on the node's own disk
        outcome.write_termination_message(config.termination_log, message)


async def _write_unjoined_end(config: JobConfig, result: Outcome, node: Node) -> None:
    """Write why this member never joined a gang, for `report`. A member that was only told to stop writes nothing.

    If the volume has caused the failure, nothing is written: it would only delay the end.
    """
    cause = result.cause
    of_volume = result.code in (Exit.IO_FAILED, Exit.CANNOT_WRITE)
    if not config.job_folder or cause is None or cause.kind is CauseKind.STOPPED or of_volume:
        return
    fields = json_fields.cause_fields(cause, node.shape)
    try:
        await run_in_thread(unjoined.add, config.output, config.own_name, int(result.code), fields)
    except Failure as failure:
        log.info(failure.message)


async def _leave_volume(node: Node, may_run_for: float | None) -> None:
    """Write all files, then release the lease. As soon as another gang has the lease, it may read the files."""
    await node.write_last_files(FLUSH_WITHIN)
    await node.release_folder(may_run_for)


def _may_run_for(result: Outcome, node: Node, session: Session) -> float | None:
    """Return how many seconds a process of this gang can still run at most, or None if this member cannot know."""
    cause = result.cause
    hub_is_dead = cause is not None and cause.rank == 0 and cause.kind is CauseKind.LOST and not cause.silent
    return session.gang.remaining_run_time() if node.rank == 0 or hub_is_dead else None


async def _answer_in_time(answer: Awaitable[bool]) -> bool:
    """Return the answer of the volume, or False if there is no answer within 1 s."""
    try:
        return await wait_within(answer, FLUSH_WITHIN / 2)
    except asyncio.TimeoutError:
        return False


def _folder_without_rank(config: JobConfig, session: Session) -> str | None:
    """Return the folder for the logs if a server has failed before the join, else None."""
    first = session.failures.first
    failed = first is not None and first.kind is CauseKind.PSERVER
    return os.path.join(config.output, f"pod_{config.own_name}") if failed else None
