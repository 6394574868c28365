"""Volume to container: the configuration and this rank's shard. A child (launcher.data.stage_child) copies."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from launcher.base.helper import Helper
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

_RECORD = ".paddle-launcher-staged.json"


@dataclass(frozen=True)
class Copy:
    """One folder to copy: all of `source` but what is hidden at its top goes into `destination`.

    `job` (the job's folder on the volume) and `trainers` (of a shard: how many there are) make a failure say more.
    """

    source: str
    destination: str
    what: str
    job: str
    trainers: int | None = None


class Staging:
    """The copies of one member, in order. `close()` is always due and may come at any time."""

    def __init__(self, copies: Sequence[Copy], workdir: str, env: Mapping[str, str]) -> None:
        request = {"copies": [asdict(copy) for copy in copies], "record": os.path.join(workdir, _RECORD)}
        self._worker = Helper("launcher.data.stage_child", request, env)

    async def run(self) -> None:
        """Returns when everything is there; else the Failure says what is missing or what went wrong."""
        complete, failure = False, None
        async for message in self._worker.messages():
            if "say" in message:
                log.info(message["say"])
            elif "failure" in message:
                failure = Failure(Exit(message["failure"][0]), message["failure"][1])
            complete = complete or "complete" in message
        if failure is not None:
            raise failure
        if not complete:
            hint = "was it out of memory?" if self._worker.code == 137 else self._worker.last_words()
            how = f"ended with code {self._worker.code} before all was there: {hint}"
            raise Failure(Exit.IO_FAILED, f"the process that copies from the volume {how}")

    async def close(self) -> None:
        """Kill the child and its workers, whatever the volume does."""
        await self._worker.close()
