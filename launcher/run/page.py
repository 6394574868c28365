"""On the hub: start a child that renders output/report.html, after each generation and at the end of the job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from launcher.base.aio import run_in_thread, wait_within
from launcher.base.helper import Helper
from launcher.errors import Failure

log = logging.getLogger(__name__)

_CHILD = "launcher.report.child"
_FLUSH_WITHIN = 5.0  # seconds, for the events that the page must show
_RENDER_WITHIN = 60.0


class Page:
    """The page of one job. At most one child renders the page at a time. Only `finish` waits for the child.

    flush: writes all events to the volume, in at most the given seconds. Blocks.
    """

    def __init__(self, output: str, env: Mapping[str, str], flush: Callable[[float], bool]) -> None:
        self._request = {"output": output}
        self._env = env
        self._flush = flush
        self._rendering: asyncio.Task[None] | None = None
        self._is_outdated = False
        self._reported = False

    def render(self) -> None:
        """Render the page soon. If a child renders already, render once more after it."""
        self._is_outdated = True
        if self._rendering is None or self._rendering.done():
            self._rendering = asyncio.create_task(self._render_all())

    async def finish(self, within: float) -> None:
        """Render the page with all events so far. Give up after `within` seconds."""
        self.render()
        assert self._rendering is not None
        try:
            await wait_within(self._rendering, within)
        except asyncio.TimeoutError:
            log.info(f"report.html does not show the end of the job: it was not rendered within {within:g} s")

    async def _render_all(self) -> None:
        while self._is_outdated:
            self._is_outdated = False
            try:
                await wait_within(self._render(), _RENDER_WITHIN)
            except asyncio.TimeoutError:
                self._report(f"it was not rendered within {_RENDER_WITHIN:g} s")
            except Failure as failure:
                self._report(failure.message)

    async def _render(self) -> None:
        await run_in_thread(self._flush, _FLUSH_WITHIN)
        helper, failure = Helper(_CHILD, self._request, self._env), ""
        try:
            async for message in helper.messages():
                failure = message["failure"][1] if "failure" in message else failure
            if failure or helper.exit_code:
                self._report(failure or f"its process ended with code {helper.exit_code}: {helper.last_error_line()}")
        finally:
            await helper.close()

    def _report(self, why: str) -> None:
        """Log only the first problem, since a user can render the page at any time."""
        if not self._reported:
            self._reported = True
            log.info(f"report.html is not up to date: {why}; `paddle-launcher report` renders it again")
