"""Run the steps of a session at the same time, as tasks."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable

from launcher.base import shortage
from launcher.errors import Exit, Failure
from launcher.model import CauseKind

_FRAMES = 8  # the last calls of a traceback: messages of the gang are limited


class Steps:
    """Run steps as tasks. `failed` is called with each step that fails, and with its failure."""

    def __init__(self, failed: Callable[[CauseKind, Failure], None]) -> None:
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, step: CauseKind, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._report_failure(step, work))
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)  # else a cancelled task would keep its whole attempt in memory
        return task

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def _report_failure(self, step: CauseKind, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._failed(step, fault(step, error))


def fault(step: CauseKind, error: Exception) -> Failure:
    """Return the Failure for an error that no other code expects: a limit that is used up, or a fault of the launcher.

    A fault has its traceback. A Failure is returned as it is.
    """
    if isinstance(error, Failure):
        return error
    if why := shortage.explain(error):
        return Failure(Exit.IO_FAILED, f"the launcher cannot continue ({str(step)!r}): {why}")
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES))
    return Failure(Exit.MASKED, f"a fault of the launcher itself in {str(step)!r}, please report it:\n{trace}")
