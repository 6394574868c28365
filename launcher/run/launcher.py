"""Set up the process of one launcher, run session after session, and return the exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from launcher import paddle
from launcher.base import shortage
from launcher.base.aio import start_threads, wait_within
from launcher.base.log import StderrHandler, shown_by
from launcher.base.spawn import become_subreaper, handle_ignored_signals
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.gang import Finish, Stop
from launcher.model import CauseKind, Outcome, member_name
from launcher.processes.guardian import Guardian
from launcher.processes.proc import tagged_environment
from launcher.run import backoff_limit, endpoint
from launcher.run.factories import REAL, Factories
from launcher.run.faults import Faults
from launcher.run.node import Node
from launcher.run.session import Rejoin, Session
from launcher.run.shutdown import shut_down
from launcher.run.signals import Signals
from launcher.run.steps import fault

log = logging.getLogger(__name__)

_TELL_WITHIN = 1.0  # seconds


def launch(config: JobConfig, flags: Sequence[str], command: Sequence[str], received: Sequence[int]) -> int:
    """Run one launcher and return its exit code.

    A stalled volume may block threads. So the caller must end the process without waiting for threads.

    received: the signals that arrived before this call
    """
    handle_ignored_signals()
    tag = secrets.token_hex(8)
    guardian = _guardian(tag)
    rank = config.discovery.rank
    name = member_name(config.role, "?") if rank is None else config.shape.name(rank)
    handler = StderrHandler(name=name)
    with shown_by(handler):
        try:
            handler.start()
            start_threads()
            for warning in (*config.warnings, *paddle.warnings(flags, command)):
                log.warning(warning)
            if attempts := backoff_limit.describe(config):
                log.info(attempts)
            become_subreaper()
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            result = loop.run_until_complete(_run_on_loop(config, flags, command, received, guardian, tag))
        except Exception as error:  # the guardian is not dismissed, and kills all processes that are left
            raise fault(CauseKind.LAUNCHER, error) from error
        finally:
            handler.close(0.5)
        if guardian is not None:
            guardian.dismiss()
    return result.code


def _guardian(tag: str) -> Guardian | None:
    """Start a guardian, unless this is process 1, which needs none. Raises Failure."""
    try:
        return None if os.getpid() == 1 else Guardian(tag)
    except OSError as error:
        why = shortage.explain(error, starting=True) or error
        raise Failure(Exit.IO_FAILED, f"the guardian process cannot be started: {why}") from None


async def _run_on_loop(
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    received: Sequence[int],
    guardian: Guardian | None,
    tag: str,
) -> Outcome:
    config = replace(config, environment=tagged_environment(config.environment, tag))
    signals, faults = Signals(), Faults()
    signals.watch(received)
    faults.watch()
    try:
        await endpoint.answer(config.workdir)
    except (OSError, Failure) as error:
        log.warning(f"probes get no answer (`paddle-launcher alive`): {error}")
    result = await run(config, flags, command, signals, guardian, faults=faults)
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
    faults: Faults | None = None,
) -> Outcome:
    """Run session after session, until this member ends. Return this member's outcome."""
    node, faults = Node(config, flags, command), faults or Faults()
    session = Session(config, command, node, signals, guardian, factories)
    signals.on_forwarded = lambda number: session.attempt.supervisor.forward(number)
    while isinstance(end := await _run_session(session, node, faults), Rejoin):
        session = Session(config, command, node, signals, guardian, factories, after=end.cause)
    try:
        return await shut_down(end, config, node, session, signals)
    except Exception as error:
        failure = fault(CauseKind.LAUNCHER, error)
        await _tell_others(failure, session, node)
        raise failure from error


async def _run_session(session: Session, node: Node, faults: Faults) -> Stop | Finish | Rejoin:
    """Run a session. A fault of the launcher itself is reported to the gang, and ends this member."""
    running = asyncio.ensure_future(session.run())
    either: list[asyncio.Future[Any]] = [running, faults.first]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        failure = faults.first.result()
    except Exception as error:
        failure = fault(CauseKind.LAUNCHER, error)
    finally:
        running.cancel()
    cause = node.cause(CauseKind.LAUNCHER, failure.message, failure.code)
    session.gang.report_failed(cause, time.monotonic())
    return Stop(cause)


async def _tell_others(failure: Failure, session: Session, node: Node) -> None:
    """Report a failure of the shutdown to the gang: otherwise this member would look as if it was lost."""
    try:
        session.gang.report_failed(node.cause(CauseKind.LAUNCHER, failure.message, failure.code), time.monotonic())
        await wait_within(session.gang.close(), _TELL_WITHIN)
    except Exception as error:
        log.warning(f"the other members do not learn the cause: {error}")
