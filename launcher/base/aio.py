"""Run what blocks outside of the event loop, and bound what is awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


def off_loop(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run `work` in a thread of its own: what may block for ever (a stalled volume) must hold neither loop nor pool."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not result.done():
            set_it(value)

    def run() -> None:
        try:
            value = work(*args)
        except BaseException as error:
            outcome: tuple[Callable[[Any], None], object] = (result.set_exception, error)
        else:
            outcome = (result.set_result, value)
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # the loop has ended meanwhile: nobody waits any more

    threading.Thread(target=run, daemon=True, name=getattr(work, "__name__", "off-loop")).start()
    return result


async def bounded(work: Awaitable[T], within: float) -> T:
    """Like asyncio.wait_for, which before Python 3.12 can lose a cancellation that comes together with the result."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may be left to see it
    try:
        done, _ = await asyncio.wait([task], timeout=within)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
