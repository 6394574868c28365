"""Set up the process of one launcher, run session after session, and return the exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from launcher import paddle
from launcher.base.log import StderrHandler, shown_by
from launcher.base.spawn import become_subreaper, handle_ignored_signals
from launcher.config import JobConfig
from launcher.errors import Exit
from launcher.gang import Finish, Stop
from launcher.model import CauseKind, Outcome, member_name
from launcher.processes.guardian import Guardian
from launcher.processes.proc import tagged_environment
from launcher.run import backoff_limit, endpoint
from launcher.run.factories import REAL, Factories
from launcher.run.node import Node
from launcher.run.session import Rejoin, Session
from launcher.run.shutdown import shut_down
from launcher.run.signals import Signals
from launcher.run.steps import fault

log = logging.getLogger(__name__)


def launch(config: JobConfig, flags: Sequence[str], command: Sequence[str], received: Sequence[int]) -> int:
    """Run one launcher and return its exit code.

    A stalled volume may block threads. So the caller must end the process without waiting for threads.

    received: the signals that arrived before this call
    """
    handle_ignored_signals()
    tag = secrets.token_hex(8)
    guardian = None if os.getpid() == 1 else Guardian(tag)
    rank = config.discovery.rank
    name = member_name(config.role, "?") if rank is None else config.shape.name(rank)
    handler = StderrHandler(name=name)
    with shown_by(handler):
        for warning in (*config.warnings, *paddle.warnings(flags, command)):
            log.warning(warning)
        if attempts := backoff_limit.describe(config):
            log.info(attempts)
        become_subreaper()
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(_run_on_loop(config, flags, command, received, guardian, tag))
        if guardian is not None:
            guardian.dismiss()
        handler.close(0.5)
    return result.code


async def _run_on_loop(
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    received: Sequence[int],
    guardian: Guardian | None,
    tag: str,
) -> Outcome:
    config = replace(config, environment=tagged_environment(config.environment, tag))
    signals = Signals()
    signals.watch(received)
    try:
        await endpoint.answer(config.workdir)
    except OSError as error:
        log.warning(f"probes get no answer (`paddle-launcher alive`): {error}")
    result = await run(config, flags, command, signals, guardian)
    if config.stay and result.code == Exit.COMPLETE:
        log.info("waiting for SIGTERM (LAUNCHER_STAY)")
        await signals.stop_requested
    return result


async def run(
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    signals: Signals,
    guardian: Guardian | None,
    factories: Factories = REAL,
) -> Outcome:
    """Run session after session, until this member ends. Return this member's outcome."""
    node = Node(config, flags, command)
    session = Session(config, command, node, signals, guardian, factories)
    while isinstance(end := await _run_session(session, node), Rejoin):
        session = Session(config, command, node, signals, guardian, factories, after=end.cause)
    return await shut_down(end, config, node, session, signals)


async def _run_session(session: Session, node: Node) -> Stop | Finish | Rejoin:
    """Run a session. If the launcher itself has a fault, report the fault to the gang and end this member."""
    try:
        return await session.run()
    except Exception as error:
        failure = fault(CauseKind.LAUNCHER, error)
        cause = node.cause(CauseKind.LAUNCHER, failure.message, failure.code)
        session.gang.report_failed(cause, time.monotonic())
        return Stop(cause)
