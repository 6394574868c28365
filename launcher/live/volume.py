"""Views of a job from its files on the volume. Each poll reads only what has changed."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from launcher.base.clock import duration
from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.live import words
from launcher.live.view import COMPLETE, PROBLEMS, EventLine, JobView, MemberView, Pace, phase_of
from launcher.model import BOTH, Numbers, member_name
from launcher.store import json_fields, status
from launcher.store.events import Event, fold_member
from launcher.store.status import Place
from launcher.store.tails import EventTail, LogEnd, read_log_end

_POLL_SECONDS, _LONGEST_PAUSE = 1.0, 10.0
_LAST_EVENTS = 50
_LOGS = 20  # ends of logs that are read in one poll
_MOST_MEMBERS = 5000
_ENDS_WITHIN = 3.0  # seconds after the end of the job in which its members write how they have ended
_WAITING = "no member has joined yet: `kubectl get pods` and the pods' logs show what the pods wait for"
_MARK = "==== "  # the line of the launcher with which the log of a generation begins
_COUNTS = ("pass_number", "passes", "step", "steps", "pass_steps")
_NO_HUB = "no launcher of this job renews its lease any more: all were killed, or cannot write to the volume"


class VolumeSource:
    """Views of the job in a folder, one per call of `poll`. Any thread may call it, but only one at a time."""

    def __init__(self, job_folder: str) -> None:
        self.name = words.line(os.path.basename(os.path.abspath(job_folder)))
        self._job_folder = job_folder
        self._output = Folder(os.path.join(job_folder, "output"))
        self._events = EventTail(self._output)
        self._job: Mapping[str, Any] = {}
        self._job_file: tuple[int, ...] | None = None
        self._members: dict[Place, _Member] = {}
        self._lines: deque[EventLine] = deque(maxlen=_LAST_EVENTS)
        self._next_log = 0
        self._size: object = None  # how many trainers the latest generation has
        self._ended_since: float | None = None

    def poll(self) -> JobView:
        """Return the state of the job now. Raises Failure if the folder cannot be read. Blocks."""
        if not os.path.isdir(self._job_folder):
            expected = "expected a job's folder, JOB_PATH/JOB_NAME"
            raise Failure(Exit.NO_INPUT, f"{self._job_folder}: no such folder: {expected}")
        now, unusable = time.time(), list[str]()
        self._read_job(unusable)
        members = self._read_members(unusable)
        if not members:
            return JobView(self.name, self._job_folder, now, "waiting", notes=(_WAITING, *unusable))
        self._read_logs()
        return self._view(members, now, unusable)

    def pause(self, took: float) -> float:
        """Return the seconds until the next poll: more if the volume is slow, or the job large."""
        return min(max(_POLL_SECONDS, 4 * took), _LONGEST_PAUSE)

    def _read_job(self, unusable: list[str]) -> None:
        found = self._events.read()
        self._lines.extend(filter(None, map(self._in_words, found)))
        file = _signature(self._output, "job.json")
        if found or file != self._job_file:
            problems: list[str] = []
            job = status.read_job(self._output, problems)
            unusable += problems
            self._job_file = None if problems else file
            self._job = job or self._job

    def _in_words(self, event: Event) -> EventLine | None:
        line = words.job_event(event, self._size)
        if event["event"] == "generation_begun" and isinstance(generation := event.get("generation"), dict):
            self._size = generation.get("trainers")
        return line

    def _read_members(self, unusable: list[str]) -> dict[Place, Mapping[str, Any]]:
        """Return the status of each member of this run, and keep only these members."""
        for name in self._output.names():
            if (match := status.MEMBER_FOLDER.fullmatch(name)) and len(self._members) < _MOST_MEMBERS:
                place = match[1], int(match[2])
                self._members.setdefault(place, _Member(self._output.below(name)))
        for member in self._members.values():
            member.read(self._lines, unusable)
        found = {place: member.status for place, member in self._members.items() if member.status}
        return status.members_of_run(self._job, found)

    def _read_logs(self) -> None:
        """Read the ends of some logs, in turn, so that a poll of a large job takes no longer."""
        trainers = [member for place, member in self._members.items() if place[0] == "node"]
        for _ in range(min(_LOGS, len(trainers))):
            self._next_log = (self._next_log + 1) % len(trainers)
            trainers[self._next_log].read_log()

    def _view(self, found: Mapping[Place, Mapping[str, Any]], now: float, unusable: list[str]) -> JobView:
        is_over = status.gang_is_over(self._output, self._job)
        members = tuple(self._member(place, told, is_over) for place, told in found.items())
        generations = [each.get("number") for each in self._job.get("generations") or []]
        generation = generations[-1] if generations else None
        phase, exit_code, verdict = self._end(found, members, is_over, now)
        fraction, ends_at = self._slowest(members)
        notes = [words.line(text) for text in unusable]
        if is_over and not verdict and any(member.phase in PROBLEMS for member in members):
            notes.append(_NO_HUB)
        return JobView(
            self.name,
            self._job_folder,
            now,
            phase or phase_of(members),
            members,
            generation,
            1.0 if exit_code == Exit.COMPLETE else fraction,
            None if verdict or fraction == 1 else ends_at,
            tuple(sorted(self._lines, key=lambda each: each.at)),
            tuple(notes),
            exit_code,
            verdict,
        )

    def _member(self, place: Place, told: Mapping[str, Any], is_over: bool) -> MemberView:
        member = self._members.get(place)
        phase, what = words.line(told.get("phase") or ""), words.own_cause(told)
        if is_over and phase in status.ACTIVE and member:
            silent = status.silence(member.folder)
            if silent:
                phase, what = "lost", f"{phase}? not written for {duration(silent)}"
        numbers = member.numbers if member else Numbers()
        passes = numbers.passes or (member.passes if member else None)
        end = member.log_end if member else None
        return MemberView(
            str(told.get("role") or BOTH),
            place[1],
            words.line(told.get("pod") or ""),
            phase,
            what,
            told.get("last_pass"),
            passes,
            numbers,
            words.line(end.line) if end else "",
            end.at if end else None,
        )

    def _slowest(self, members: tuple[MemberView, ...]) -> tuple[float | None, float | None]:
        """Return how much the member has done that is furthest behind, and when it ends. None: nothing shows it."""
        known = [member for member in members if member.trains and member.fraction is not None]
        if not known:
            return None, None
        slowest = min(known, key=lambda member: member.fraction or 0.0)
        files = self._members.get(("node", slowest.rank))
        return slowest.fraction, files.pace.ends_at if files else None

    def _end(
        self, found: Mapping[Place, Mapping[str, Any]], members: tuple[MemberView, ...], is_over: bool, now: float
    ) -> tuple[str, int | None, str]:
        """Return phase, exit code and verdict of a job that has ended, else ("", None, "").

        Wait a moment for the last words of all members. If the hub could not write the end, the members show it.
        """
        code, told = self._job.get("exit_code"), words.cause(self._job.get("first_cause"))
        written = [each for each in found.values() if each.get("exit_code") is not None]
        if self._job.get("ended") is None or type(code) is not int:
            gone = [member for member in members if member.phase == "lost"]
            if not is_over or not written or len(written) + len(gone) < len(members):
                self._ended_since = None
                return "", None, ""
            blamed = next((each for each in written if each.get("first_cause")), {})
            first = blamed.get("first_cause") or {}
            own = first.get("code")
            code = own if type(own) is int and own else int(Exit.PEER_LOST)
            told = words.cause(first) or "the hub was lost before it could write the end of the job"
        elif len(written) < len(members) and not is_over:
            self._ended_since = self._ended_since or now
            if now - self._ended_since < _ENDS_WITHIN:
                return "", None, ""
        if code == Exit.COMPLETE:
            return COMPLETE, code, "the job is complete"
        return "failed", code, f"exit code {code}: {told}"


class _Member:
    """What the files of one member have said so far."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.status: Mapping[str, Any] = {}
        self.numbers = Numbers()
        self.passes: int | None = None
        self.log_end: LogEnd | None = None
        self.pace = Pace()
        self._events = EventTail(folder)
        self._file: tuple[int, ...] | None = None
        self._unusable: list[str] = []

    def read(self, lines: deque[EventLine], unusable: list[str]) -> None:
        """Read what is new, and add the lines of events that a reader should see."""
        try:
            found = self._events.read()
        except Failure as failure:
            unusable.append(failure.message)
            found = []
        file = _signature(self.folder, "status.json")
        if file != self._file:
            self._file, self._unusable = file, []
            content = status.read_member(self.folder, self._unusable)
            self.status = content or self.status
        unusable += self._unusable
        role, rank = str(self.status.get("role") or BOTH), self.status.get("rank")
        for event in found:
            self._add(event)
            if made := words.member_event(member_name(role, rank), event):
                lines.append(made)

    def read_log(self) -> None:
        try:
            end = read_log_end(self.folder, "train.log")
            self.log_end = None if end and end.line.startswith(_MARK) else end
        except Failure:
            self.log_end = None  # the files of the launcher say how the member is

    def _add(self, event: Event) -> None:
        if event["event"] in ("generation", "joined"):
            self.numbers, self.passes = Numbers(), _count(event, "passes")
            self.pace = Pace()
        if str(event["at"])[:19] >= str(self.status.get("written") or "")[:19]:
            folded = fold_member(self.status, event)
            if _is_sound(folded):
                self.status = folded
        if event["event"] == "numbers":
            self.numbers = _numbers(event)
        if event["event"] in ("numbers", "pass"):
            self._measure(event)

    def _measure(self, event: Event) -> None:
        done = event.get("pass") if event["event"] == "pass" else self.status.get("last_pass")
        last = done if type(done) is int else None
        view = MemberView(BOTH, 0, last_pass=last, passes=self.numbers.passes or self.passes, numbers=self.numbers)
        if view.fraction is not None:
            self.pace.add(words.seconds_of(event), view.fraction, time.time())


def _signature(folder: Folder, name: str) -> tuple[int, ...] | None:
    """Return what changes if a file is written, or None if it is missing or cannot be read."""
    try:
        found = folder.stat(name)
    except Failure:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found else None


def _is_sound(content: Mapping[str, Any]) -> bool:
    try:
        status.check_member(dict(content))
    except ValueError:
        return False
    return True


def _count(event: Event, name: str) -> int | None:
    try:
        return json_fields.integer(event, name)
    except ValueError:
        return None


def _numbers(event: Event) -> Numbers:
    """Return the numbers of an event. A value of another type is left out."""
    found: dict[str, Any] = {name: _count(event, name) for name in _COUNTS}
    for each in fields(Numbers):
        if each.name not in found:
            found[each.name] = _float(event.get(each.name))
    return Numbers(**found)


def _float(value: object) -> float | None:
    if value in ("nan", "inf", "-inf"):
        return float(str(value))
    if isinstance(value, int | float) and type(value) is not bool and math.isfinite(value) and abs(value) < 1e300:
        return float(value)
    return None
