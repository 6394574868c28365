"""The files that describe a running job.

Each member writes events.jsonl and status.json to its folder. The hub writes the job's events.jsonl, job.json and
attempts.json.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from launcher.base.aio import STATUS
from launcher.base.file_errors import describe_error
from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.model import Member, Outcome, Roster, Shape, member_folder
from launcher.store import unjoined
from launcher.store.events import EventLog, Timeline
from launcher.store.json_fields import as_bytes, cause_fields, place_fields
from launcher.store.record import ATTEMPTS, History

log = logging.getLogger(__name__)


class Journal:
    """Write the files of this member and, on the hub, of the job. Threads write: only `flush` waits for the volume.

    status.json and job.json have the facts of all events so far. Nothing is written before `open`: until then,
    another gang may train into the folder.

    history: the history of the job on the hub; None on all other members
    record: the folder for attempts.json, or None if the job has no identity
    events, job_events: the timelines of this launcher, over all its sessions
    about: more fields for the event `gang`
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
        events: Timeline,
        job_events: Timeline,
        about: Mapping[str, object] | None = None,
    ) -> None:
        assert me.rank is not None
        self.log_folder = Folder(output, member_folder(me.role, shape.number(me.rank)))
        self.folder = self.log_folder.path
        self._output = Folder(output)
        self._shape = shape
        self._history = history
        self._events = events
        self._job_events = job_events
        self._is_open = False
        self._generation: Mapping[str, Any] | None = None  # the latest generation, as in the latest event
        self._status = LatestFile(self.log_folder, "status.json")
        self._newest_status: Mapping[str, Any] | None = None
        self._summary = LatestFile(self._output, "job.json")
        self._attempts = LatestFile(record, ATTEMPTS) if record else None
        self._events.add("joined", job=job, **place_fields(me.rank, shape), pod=me.pod, uid=me.uid)
        if history is not None:
            job_events.content = {"generations": history.content()["generations"]}
            members = [{**asdict(member), **place_fields(member.rank, shape)} for member in roster.members]
            job_events.add("gang", job=job, members=members, **(about or {}))

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        """Write all events until now, and all later ones."""
        self._is_open = True
        self._events.log.open(self.log_folder)
        if self._history is not None:
            self._job_events.log.open(self._output)
            STATUS.put(partial(unjoined.clear, self._output.path))

    def close(self) -> None:
        """Write no more: another gang may use the folder from now on."""
        self._is_open = False
        self._events.log.hold()
        self._job_events.log.hold()

    def write_status(self) -> None:
        """Write status.json, unless it has the newest content already."""
        content = self._events.content
        if self._is_open and content is not self._newest_status:
            self._newest_status = content
            self._status.put(content)

    def write_summary(self, outcome: Outcome | None) -> None:
        """On the hub, write job.json and attempts.json.

        The caller must call this when the history has changed or the job has ended.
        """
        if self._history is None or not self._is_open:
            return
        history = self._history.content()
        self._add_generation(history["generations"])
        if outcome is not None:
            cause = cause_fields(outcome.cause, self._shape)
            self._job_events.add("ended", exit_code=outcome.job_code, first_cause=cause)
        if self._attempts:
            self._attempts.put(history)
        self._summary.put(self._job_events.content)

    def _add_generation(self, generations: Sequence[Mapping[str, Any]]) -> None:
        """Add an event if the latest generation has changed."""
        latest = generations[-1] if generations else None
        if latest is not None and latest != self._generation:
            self._generation = dict(latest)
            self._job_events.content = {**self._job_events.content, "generations": generations}
            name = "generation_begun" if latest["ended"] is None else "generation_ended"
            self._job_events.add(name, generation=self._generation)

    def flush(self, within: float) -> bool:
        """Wait until the newest version of each file is written. Blocks: the event loop must not call it.

        Return False if a file is not written within `within` seconds.
        """
        written: list[LatestFile | EventLog] = [self._events.log, self._status]
        if self._history is not None:
            written += [self._job_events.log, self._summary, *([self._attempts] if self._attempts else [])]
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
        """Wait at most `within` seconds until the newest version is written. Return whether it is written. Blocks."""
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
            except Exception as error:  # the thread must still write the next version
                if not self._reported:
                    log.info(describe_error(self._folder.path_of(self._name), error))
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
