"""Faults of the launcher itself that no step handles: exceptions in callbacks, and in tasks that no code awaits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Generator
from typing import Any

from launcher.base import shortage
from launcher.errors import Failure
from launcher.model import CauseKind
from launcher.run.steps import fault

log = logging.getLogger(__name__)

_REPORT_EVERY = 30.0
_AWAITED_WITHIN = 5.0  # seconds from the end of a task until other code must have retrieved its exception


class Faults:
    """The exception handler of the running event loop. Without it, only the log would show these exceptions.

    first: done with the first fault, since the launcher cannot continue after it
    """

    def __init__(self) -> None:
        self.first: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self._reported_at = -_REPORT_EVERY

    def watch(self) -> None:
        """Watch the running loop, and all tasks that it creates from now on."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._handle)
        loop.set_task_factory(self._make_task)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        task.add_done_callback(self._look_later)
        return task

    def _look_later(self, task: asyncio.Task[Any]) -> None:
        if _has_unseen_exception(task):
            task.get_loop().call_later(_AWAITED_WITHIN, self._look, task)

    def _look(self, task: asyncio.Task[Any]) -> None:
        """Handle the exception of a task that no code awaits: what this task did is no longer done."""
        if not _has_unseen_exception(task):
            return
        error = task.exception()
        if isinstance(error, Failure) and not self.first.done():
            self.first.set_result(error)
        self._handle(task.get_loop(), {"message": f"{task.get_name()} has ended", "exception": error})

    def _handle(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, what = context.get("exception"), context.get("message", "")
        if isinstance(error, Failure):
            log.info(error.message)
        elif isinstance(error, OSError):  # of one connection or one file, and perhaps only for a moment
            self._report(f"{what}: {shortage.explain(error) or error}")
        elif isinstance(error, Exception):
            failure = fault(CauseKind.LAUNCHER, error)
            log.warning(f"{what}: {failure.message}")
            if not self.first.done():
                self.first.set_result(failure)
        else:
            log.warning(what)

    def _report(self, problem: str) -> None:
        """Log the problem, at most every 30 s: without file descriptors, each connection fails."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_EVERY:
            self._reported_at = now
            log.warning(problem)


def _has_unseen_exception(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and getattr(task, "_log_traceback", False)
