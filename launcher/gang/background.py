"""Tasks that no other code awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def in_background(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
    """Run work as a task. If it fails, the loop's exception handler gets the exception at once."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        context = {"message": "a task of the gang has failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
