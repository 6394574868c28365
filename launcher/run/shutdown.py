"""The end of a launcher: the outcome told to everybody, and written down."""

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
from launcher.run.session import FAREWELL, Session

log = logging.getLogger(__name__)


async def leave(result: Outcome, config: JobConfig, node: Node, session: Session, held: Cause | None) -> None:
    """Tell everybody and write what is still to be written, within a bound that a stalled volume cannot move.

    `held` is a failure that no gang could be told of.
    """
    if session.generations.done() and result.cause is None:
        session.generations.result().complete()
    supervisor = session.turn.supervisor
    leaving = node.leave_folder(_may_run_for(result, node, session))
    if node.journal is None:
        supervisor.set_log_folder(_folder_without_rank(config, held), f"pod {config.own_name}, never joined")
    elif node.journal.begun or not await _is_soon(node.another_trains()):
        session.place_early_logs()
        node.journal.ended(result)
    message = outcome.termination_message(result)
    said = f"exit code {result.code}: {result.text}"
    others = []
    if result.code in FOR_GOOD:
        others.append(session.joining.mark_failed_for_good(said))
    elif backoff_limit.counts_pod(config, result.code):
        others.append(session.joining.count_failed_pod(said))
    farewells = [
        session.gang.close(),
        *([session.explain_end(result.cause)] if result.cause and result.cause.kind is CauseKind.LOST else []),
        supervisor.close(FAREWELL),
        run_in_thread(outcome.write_termination_message, config.termination_log, message),
        _leave_volume(node, leaving),
        *others,
    ]
    await asyncio.wait([asyncio.ensure_future(farewell) for farewell in farewells], timeout=FAREWELL + 0.5)
    log.info(said)  # behind what all these had to say: whoever looks at one line looks at the last


async def _leave_volume(node: Node, leaving: Awaitable[None]) -> None:
    """Another gang may read these files as soon as it has the folder."""
    if node.journal:
        await run_in_thread(node.journal.flush, FAREWELL)
    await leaving


def _may_run_for(result: Outcome, node: Node, session: Session) -> float | None:
    """Of this gang, as far as this member can know: the hub does; and the others where the hub is dead."""
    cause = result.cause
    hub_is_dead = cause is not None and cause.rank == 0 and cause.kind is CauseKind.LOST and not cause.silent
    return session.gang.remaining_run_time() if node.rank == 0 or hub_is_dead else None


async def _is_soon(so: Awaitable[bool]) -> bool:
    """Whether it is so, as far as the volume answers in a moment."""
    try:
        return await wait_within(so, FAREWELL / 2)
    except asyncio.TimeoutError:
        return False


def _folder_without_rank(config: JobConfig, held: Cause | None) -> str | None:
    """Where the log of a server goes that failed before there was a gang; nowhere if it did not fail."""
    failed = held is not None and held.kind is CauseKind.PSERVER
    return os.path.join(config.output, f"pod_{config.own_name}") if failed else None
