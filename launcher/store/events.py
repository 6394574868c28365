"""The timeline of a job: events.jsonl, one event per line. Each member writes its own; the hub also writes the job's.

docs/events.md describes the events, events.schema.json defines them. status.json and job.json are what `fold_member`
and `fold_job` make of the events, one after the other.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from launcher.base.aio import STATUS
from launcher.base.clock import WallClock, stamp
from launcher.base.file_errors import describe_error
from launcher.base.files import Folder
from launcher.store import json_fields

log = logging.getLogger(__name__)

VERSION = 1
NAME = "events.jsonl"

Event = Mapping[str, Any]

_WAITING = 2000  # events in memory, while the volume does not take them
_BATCH = 256 * 1024
_READ_AT_MOST = 64 * 1024 * 1024  # of the end of a file
_LINE_LIMIT = 2 * 1024 * 1024  # the event `gang` of 1,000 members with long names has 0.5 MiB
_KEPT_GENERATIONS = 100
_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class EventLog:
    """Append events to a file. A thread writes: no caller waits for the volume.

    Events wait in memory until `open` is called, and while the volume does not take them. If too many wait, the oldest
    are dropped, and an event `dropped` says how many. Any thread may call the methods.
    """

    def __init__(self) -> None:
        self._folder: Folder | None = None
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._writing = False
        self._reported = False
        self._changed = threading.Condition()

    def add(self, event: Event) -> None:
        line = as_line(event)
        with self._changed:
            if len(self._waiting) >= _WAITING:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(line)
        self._start_writing()

    def open(self, folder: Folder) -> None:
        """Write to this folder from now on, beginning with the events that wait."""
        with self._changed:
            self._folder = folder
        self._start_writing()

    def hold(self) -> None:
        """Keep later events in memory. The caller calls this when another gang may use the folder."""
        with self._changed:
            self._folder = None

    def flush(self, within: float) -> bool:
        """Wait until all events are written, for at most `within` seconds. Return whether all are written. Blocks."""
        self._start_writing()  # try again, if the last write has failed
        with self._changed:
            return self._changed.wait_for(lambda: not self._writing, within)

    def _start_writing(self) -> None:
        with self._changed:
            if self._writing or self._folder is None or not self._waiting:
                return
            self._writing = True
        STATUS.put(self._write_all)

    def _write_all(self) -> None:
        try:
            while self._write_batch():
                pass
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _write_batch(self) -> bool:
        """Write some of the events that wait. Return whether further events may be written now."""
        with self._changed:
            folder, lines, size = self._folder, [], 0
            if self._dropped:
                lines.append(as_line(new_event("dropped", count=self._dropped)))
            for line in self._waiting:
                size += len(line)
                if lines and size > _BATCH:
                    break
                lines.append(line)
            dropped, self._dropped = self._dropped, 0
            count = len(lines) - bool(dropped)
            for _ in range(count):
                self._waiting.popleft()
        if folder is None or not lines:
            self._put_back(lines, dropped)
            return False
        try:
            folder.append(NAME, b"".join(lines))
        except Exception as error:  # the thread must still write later events
            self._put_back(lines, dropped)
            if not self._reported:
                log.info(describe_error(folder.path_of(NAME), error))
            self._reported = True
            return False
        self._reported = False
        return True

    def _put_back(self, lines: list[bytes], dropped: int) -> None:
        with self._changed:
            self._dropped += dropped
            self._waiting.extendleft(reversed(lines[bool(dropped) :]))


class Timeline:
    """The events of one member or of the job, and the content of the status file that they make.

    If the clock of the node was set, an event `clock_set` says by how much.

    fold: returns the content after one more event. Any thread may call `add`.
    """

    def __init__(self, fold: Callable[[Mapping[str, Any], Event], Mapping[str, Any]]) -> None:
        self.log = EventLog()
        self.content: Mapping[str, Any] = {}
        self._fold = fold
        self._lock = threading.Lock()
        self._clock = WallClock()

    def add(self, name: str, **fields: object) -> None:
        event = new_event(name, **fields)
        with self._lock:
            if changed := self._clock.change():
                self.log.add(new_event("clock_set", seconds=round(changed, 3)))
            self.content = self._fold(self.content, event)
            self.log.add(event)


def new_event(name: str, **fields: object) -> Event:
    """Return an event with the current time. Fields without a value (None) are left out."""
    known = {key: _finite(value) for key, value in fields.items() if value is not None}
    return {"v": VERSION, "at": stamp(), "event": name, **known}


def _finite(value: object) -> object:
    """Return the value. A number that JSON does not know becomes a text: `nan`, `inf` or `-inf`."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_line(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(folder: Folder) -> list[Event]:
    """Return the events of a file, in their order. See `iterate`."""
    return list(iterate(folder))


def iterate(folder: Folder, at_most: int | None = None) -> Iterator[Event]:
    """Iterate over the events of a file, in their order. Lines that are not events of this version are left out.

    A power loss may have cut the last line, and any user who may write to the folder may have changed the file. Of a
    file with more than `at_most` bytes (64 MiB), only the end is read. Raises Failure if the file cannot be read.
    """
    yield from parse(folder.read_end(NAME, at_most or _READ_AT_MOST) or b"")


def parse(lines: bytes) -> Iterator[Event]:
    """Iterate over the events in these whole lines, in their order. Other lines are left out."""
    for line in io.BytesIO(lines):
        if (event := _parse(line)) is not None:
            yield event


def _parse(line: bytes) -> Event | None:
    if not line.startswith(b"{") or len(line) > _LINE_LIMIT:
        return None
    try:
        event = json_fields.read_object(line)
    except ValueError:
        return None
    name, at = event.get("event"), event.get("at")
    if event.get("v") != VERSION or not isinstance(name, str) or not isinstance(at, str) or not _AT.fullmatch(at):
        return None
    return event


# ---- folding ---------------------------------------------------------------------------------------------------------


def fold_member(status: Mapping[str, Any], event: Event) -> Mapping[str, Any]:
    """Return the content of status.json after one more event of a member: the same object, if nothing changes."""
    changed: dict[str, Any] = {}
    match event["event"]:
        case "joined":
            changed = {
                **{key: event.get(key) for key in ("job", "role", "rank", "pod", "uid")},
                **dict.fromkeys(("phase", "since", "generation", "last_pass", "exit_code", "first_cause")),
                **(_place(status) if status.get("pod") == event.get("pod") else {}),
            }
        case "phase":
            changed = {"phase": event.get("phase"), "since": _second(event)}
        case "generation":
            changed = {"generation": event.get("generation"), "last_pass": event.get("after_pass")}
        case "pass":
            changed = {"last_pass": event.get("pass")}
        case "ended":
            changed = {"exit_code": event.get("exit_code"), "first_cause": event.get("first_cause")}
    return {**status, **changed, "written": _second(event)} if changed else status


def fold_job(job: Mapping[str, Any], event: Event) -> Mapping[str, Any]:
    """Return the content of job.json after one more event of the job."""
    match event["event"]:
        case "gang":
            return {
                "job": event.get("job"),
                "members": event.get("members"),
                "generations": job.get("generations", []),
                "started": _second(event),
                "ended": None,
                "exit_code": None,
                "first_cause": None,
            }
        case "generation_begun" | "generation_ended":
            return {**job, "generations": _with(job.get("generations", []), event.get("generation") or {})}
        case "ended":
            end = {"exit_code": event.get("exit_code"), "first_cause": event.get("first_cause")}
            return {**job, "ended": _second(event), **end}
    return job


def _place(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the generation and the last pass that this launcher had before it joined again."""
    return {key: status.get(key) for key in ("generation", "last_pass")}


def _with(generations: Iterable[Mapping[str, Any]], generation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the generations, with this generation in place of its earlier state."""
    others = [each for each in generations if each.get("number") != generation.get("number")]
    return [*others, generation][-_KEPT_GENERATIONS:]


def _second(event: Event) -> str:
    return f"{str(event['at'])[:19]}Z"
