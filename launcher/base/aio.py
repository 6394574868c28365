"""Run blocking work outside of the event loop, and wait with a timeout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run `work` in a new thread, and return a future of its result.

    A thread pool is not used: work on a stalled volume may block forever, and would occupy a thread of the pool.
    """
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
            pass  # the loop has ended: the result is not needed

    threading.Thread(target=run, daemon=True, name=getattr(work, "__name__", "off-loop")).start()
    return result


async def wait_within(work: Awaitable[T], within: float) -> T:
    """Await `work` for at most `within` seconds, then cancel it and raise asyncio.TimeoutError.

    asyncio.wait_for is not used: before Python 3.12 it can lose a cancellation that comes together with the result.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(
        lambda ended: ended.cancelled() or ended.exception()
    )  # avoids a warning if no one awaits the exception
    try:
        done, _ = await asyncio.wait([task], timeout=within)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
