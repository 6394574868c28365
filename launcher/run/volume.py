"""Run work on the volume in a thread, with a time limit, since a volume may block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from launcher.base.aio import run_in_thread, wait_within
from launcher.config import JobConfig
from launcher.errors import Exit, Failure

T = TypeVar("T")


class Volume:
    """The volume of a job. `await volume(work)` runs the work in a thread, and returns its result."""

    def __init__(self, config: JobConfig) -> None:
        self._output = config.output
        self._timeout = config.volume_timeout

    async def __call__(self, work: Callable[[], T]) -> T:
        """Return the result of the work. Raises Failure if the volume does not answer in time."""
        try:
            return await wait_within(run_in_thread(work), self._timeout)
        except asyncio.TimeoutError:
            raise Failure(
                Exit.IO_FAILED,
                f"{self._output}: the volume has not answered for {self._timeout:g} s "
                "(LAUNCHER_VOLUME_TIMEOUT): is the volume's server running?",
            ) from None
