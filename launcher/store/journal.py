"""The files that describe a running job. Each member writes status.json, the hub writes job.json and attempts.json."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping
from typing import Any

from launcher.base.aio import STATUS
from launcher.base.clock import utc_now
from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.model import Member, Outcome, Roster, Shape, Snapshot, member_folder
from launcher.store.json_fields import as_bytes, cause_fields, member_status, place_fields
from launcher.store.record import ATTEMPTS, History

log = logging.getLogger(__name__)


class Journal:
    """Write the member's files in threads: only `flush` waits for the volume.

    history: the history of the job on the hub; None on all other members
    record: the folder for attempts.json, or None if the job has no identity
    """

    def __init__(
        self,
        job: str,
        output: str,
        roster: Roster,
        me: Member,
        history: History | None,
        record: Folder | None,
        shape: Shape,
    ) -> None:
        assert me.rank is not None
        self.log_folder = Folder(output, member_folder(me.role, shape.number(me.rank)))
        self.folder = self.log_folder.path
        self._job = job
        self._roster = roster
        self._me = me
        self._shape = shape
        self._started = utc_now()
        self._history = history
        self._status = LatestFile(self.log_folder, "status.json")
        self._summary = LatestFile(Folder(output), "job.json")
        self._attempts = LatestFile(record, ATTEMPTS) if record else None

    def write_status(self, snapshot: Snapshot) -> None:
        """Write status.json."""
        self._status.put(member_status(self._job, self._me, snapshot, self._shape))

    def write_summary(self, outcome: Outcome | None) -> None:
        """On the hub, write job.json and attempts.json.

        The caller must call this when the history has changed or the job has ended.
        """
        if self._history is None:
            return
        history = self._history.content()
        if self._attempts:
            self._attempts.put(history)
        self._summary.put(
            {
                "job": self._job,
                "members": [
                    {**dataclasses.asdict(member), **place_fields(member.rank, self._shape)}
                    for member in self._roster.members
                ],
                "generations": history["generations"],
                "started": self._started,
                "ended": None if outcome is None else utc_now(),
                "exit_code": None if outcome is None else outcome.job_code,
                "first_cause": cause_fields(outcome.cause if outcome else None, self._shape),
            }
        )

    def flush(self, within: float) -> bool:
        """Wait until the newest version of each file is written. Blocks: the event loop must not call it.

        Return False if a file is not written within `within` seconds.
        """
        written = [self._status]
        if self._history is not None:
            written += [self._summary, *([self._attempts] if self._attempts else [])]
        return all(file.flush(within) for file in written)


class LatestFile:
    """A small file that a thread writes. If the volume is slow, only the newest version is written.

    If another launcher has written the file meanwhile, this launcher stops writing the file: its job may have been
    deleted while the launcher still runs.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._changed = threading.Condition()
        self._newest: bytes | None = None
        self._writing = False
        self._reported = False
        self._written: set[bytes] = set()  # versions of this launcher that the file may contain

    def put(self, content: Mapping[str, Any]) -> None:
        with self._changed:
            self._newest = as_bytes(content)
            if not self._writing:
                self._writing = True
                STATUS.put(self._write)

    def flush(self, within: float) -> bool:
        """Wait until the newest version is written, for at most `within` seconds. Return whether it is. Blocks."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writing, within)

    def _write(self) -> None:
        while True:
            with self._changed:
                data, self._newest = self._newest, None
                if data is None:
                    self._writing = False
                    self._changed.notify_all()
                    return
            try:
                self._replace(data)
                self._reported = False
            except Failure as failure:
                if not self._reported:
                    log.info(failure.message)
                self._reported = True

    def _replace(self, data: bytes) -> None:
        if self._written and self._folder.read(self._name) not in (None, *self._written):
            path = self._folder.path_of(self._name)
            raise Failure(
                Exit.CANNOT_WRITE,
                f"this launcher stops writing {path}: another launcher has written it meanwhile",
            )
        self._written.add(data)
        self._folder.write(self._name, data)
        self._written = {data}
