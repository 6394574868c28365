"""The last two seconds of a launcher: report the outcome, and write what is still to be written."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable

from launcher.base.aio import run_in_thread, wait_within
from launcher.config import JobConfig
from launcher.errors import FOR_GOOD
from launcher.model import Cause, CauseKind, Outcome
from launcher.run import backoff_limit, outcome
from launcher.run.node import Node
from launcher.run.session import FLUSH_WITHIN, Session

log = logging.getLogger(__name__)


async def leave(result: Outcome, config: JobConfig, node: Node, session: Session, held: Cause | None) -> None:
    """Report the outcome to the gang, to Kubernetes and to the other role, and write it to the volume.

    Every step has a time limit, since a volume may stall.

    held: a failure that could not be reported, since there was no gang
    """
    if session.generations.done() and result.cause is None:
        session.generations.result().complete()
    supervisor = session.attempt.supervisor
    may_run_for = _may_run_for(result, node, session)
    if node.journal is None:
        supervisor.set_log_folder(_folder_without_rank(config, held), f"pod {config.own_name}, never joined")
    elif node.journal.begun or not await _answer_in_time(node.another_trains()):
        session.place_early_logs()
        node.journal.ended(result)
    message = outcome.termination_message(result)
    summary = f"exit code {result.code}: {result.text}"
    marks = []
    if result.code in FOR_GOOD:
        marks.append(session.joining.mark_failed_for_good(summary))
    elif backoff_limit.counts_pod(config, result.code):
        marks.append(session.joining.count_failed_pod(summary))
    last_steps = [
        session.gang.close(),
        *([session.explain_end(result.cause)] if result.cause and result.cause.kind is CauseKind.LOST else []),
        supervisor.close(FLUSH_WITHIN),
        run_in_thread(outcome.write_termination_message, config.termination_log, message),
        _leave_volume(node, may_run_for),
        *marks,
    ]
    await asyncio.wait([asyncio.ensure_future(step) for step in last_steps], timeout=FLUSH_WITHIN + 0.5)
    log.info(summary)  # the last line of the log, after the lines of all steps


async def _leave_volume(node: Node, may_run_for: float | None) -> None:
    """Write all files, then release the lease: another gang may read the files as soon as it has the lease."""
    if node.journal:
        await run_in_thread(node.journal.flush, FLUSH_WITHIN)
    await node.release_folder(may_run_for)


def _may_run_for(result: Outcome, node: Node, session: Session) -> float | None:
    """Return within how many seconds the last process of this gang ends, or None if this member cannot know."""
    cause = result.cause
    hub_is_dead = cause is not None and cause.rank == 0 and cause.kind is CauseKind.LOST and not cause.silent
    return session.gang.remaining_run_time() if node.rank == 0 or hub_is_dead else None


async def _answer_in_time(answer: Awaitable[bool]) -> bool:
    """Return the answer of the volume, or False if it takes too long."""
    try:
        return await wait_within(answer, FLUSH_WITHIN / 2)
    except asyncio.TimeoutError:
        return False


def _folder_without_rank(config: JobConfig, held: Cause | None) -> str | None:
    """Return the folder for the log of a server that failed before there was a gang, or None if none failed."""
    failed = held is not None and held.kind is CauseKind.PSERVER
    return os.path.join(config.output, f"pod_{config.own_name}") if failed else None
