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
from launcher.base.log import StderrHandler, TextHandler, also_shown_by, shown_by
from launcher.base.spawn import become_subreaper, handle_ignored_signals
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.gang import Finish, Stop
from launcher.model import CauseKind, Outcome, member_name
from launcher.processes.guardian import Guardian
from launcher.processes.proc import tagged_environment
from launcher.run import backoff_limit, metrics, why
from launcher.run.endpoint import Endpoint
from launcher.run.factories import REAL, Factories
from launcher.run.faults import Faults
from launcher.run.log_lines import LogLines
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
    rank = None if config.is_elastic else config.discovery.rank
    name = member_name(config.role, "?") if rank is None else config.shape.name(rank)
    lines = LogLines(config.monitoring)
    handler = StderrHandler(name=name, as_lines=lines.of_launcher)
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
            result = loop.run_until_complete(_run_on_loop(config, flags, command, received, guardian, tag, lines))
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
    lines: LogLines,
) -> Outcome:
    config = replace(config, environment=tagged_environment(config.environment, tag))
    signals, faults, endpoint = Signals(), Faults(), Endpoint()
    signals.watch(received)
    faults.watch()
    try:
        await endpoint.open(config.workdir)
    except (OSError, Failure) as error:
        log.warning(f"`paddle-launcher alive` gets no answer in this pod: {error}")
    result = await run(config, flags, command, signals, guardian, faults=faults, lines=lines, endpoint=endpoint)
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
    lines: LogLines | None = None,
    endpoint: Endpoint | None = None,
) -> Outcome:
    """Run session after session, until this member ends. Return this member's outcome."""
    node, faults = Node(config, flags, command, lines, factories.page), faults or Faults()
    if port := config.monitoring.metrics_port:
        await _serve_metrics(port, node)
    for warning in config.warnings:
        node.record_warning(warning)
    with also_shown_by(TextHandler(node.record_warning, logging.WARNING)):
        return await _run_sessions(config, command, node, signals, guardian, factories, faults, endpoint or Endpoint())


async def _serve_metrics(port: int, node: Node) -> None:
    """Serve metrics. If this fails, the job trains without metrics."""
    try:
        await metrics.serve(port, node)
    except OSError as error:
        why = shortage.explain(error) or error.strerror
        log.warning(f"no metrics: cannot listen on port {port} (LAUNCHER_METRICS_PORT): {why}: choose another port")


async def _run_sessions(
    config: JobConfig,
    command: Sequence[str],
    node: Node,
    signals: Signals,
    guardian: Guardian | None,
    factories: Factories,
    faults: Faults,
    endpoint: Endpoint,
) -> Outcome:
    session = Session(config, command, node, signals, guardian, factories)
    endpoint.explain = lambda: why.explain(node, session.gang)
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
    """Report a failure of the shutdown to the gang: otherwise this member would count as lost."""
    try:
        session.gang.report_failed(node.cause(CauseKind.LAUNCHER, failure.message, failure.code), time.monotonic())
        await wait_within(session.gang.close(), _TELL_WITHIN)
    except Exception as error:
        log.warning(f"cannot report the cause to the other members: {error}")
