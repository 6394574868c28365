"""The launcher's side of staging. The child `stage_child` copies the configuration and this rank's shard."""

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
    """A folder to copy: the content of `source`, except hidden entries at its top level, is copied to `destination`.

    what: the name of the copy in messages
    job: the job's folder on the volume, for messages
    trainers: the expected number of shards; None if this is no shard
    allow_unused: copy the shard even if the job's folder has more shards
    data: for one of several shards of a trainer: the trainer's data folder. `destination` is a folder in it
    """

    source: str
    destination: str
    what: str
    job: str
    trainers: int | None = None
    allow_unused: bool = False
    data: str | None = None


class Staging:
    """The copies of one member, done in order by a helper process.

    The caller must always call `close`; it may do so while `run` waits.
    """

    def __init__(self, copies: Sequence[Copy], workdir: str, env: Mapping[str, str]) -> None:
        request = {"copies": [asdict(copy) for copy in copies], "record": os.path.join(workdir, _RECORD)}
        self._helper = Helper("launcher.data.stage_child", request, env)

    async def run(self) -> int:
        """Make all copies. Return how many bytes were copied. Raises Failure if a source is missing or a copy fails."""
        copied, failure = None, None
        async for message in self._helper.messages():
            if "say" in message:
                log.info(message["say"])
            elif "failure" in message:
                failure = Failure(Exit(message["failure"][0]), message["failure"][1])
            copied = message.get("complete", copied)
        if failure is not None:
            raise failure
        if copied is None:
            hint = (
                "did the container run out of memory?"
                if self._helper.exit_code == 137
                else self._helper.last_error_line()
            )
            how = f"exited with code {self._helper.exit_code} before all files were copied: {hint}"
            raise Failure(Exit.IO_FAILED, f"the process that copies from the volume {how}")
        return int(copied)

    async def close(self) -> None:
        """Kill the child and its workers. Return even if the volume is stalled."""
        await self._helper.close()
