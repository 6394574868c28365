"""Read all files about a job into `Facts`. Any user who may write to the folder may have changed them.

Memory and time are bounded for files of any size. No function follows a link below the folder.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from itertools import repeat, zip_longest
from typing import Any

from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.model import BOTH, CauseKind, Saves
from launcher.report import clocks, fields
from launcher.report.facts import Facts, Generation, Lease, Member, PassDone, PeerChange, Place, finite
from launcher.report.member_events import MemberEvents, Passes, pass_of
from launcher.store import checkpoints, events, json_fields, sizes, unjoined
from launcher.store.events import Event
from launcher.store.lease_files import LeaseFiles

_FOLDER = re.compile(r"(node|pserver|heter)_(0|[1-9][0-9]{0,6})")
_READ_AT_MOST = 64 * 1024 * 1024  # of all timelines together
_OF_JOB = 8 * 1024 * 1024
_LEAST, _MOST = 32 * 1024, 8 * 1024 * 1024  # of the timeline of one member
_GENERATIONS = 2000
_MEMBERS, _CHANGES, _UNREAD, _ENDS = 3000, 2000, 20, 200
_SAMPLES = 100_000  # of all members together
_MOST_SAMPLES = 1000  # of one member
_CLOCKS = 60.0  # seconds by which the clocks of two nodes may differ


def read(output: str, now: float | None = None) -> Facts:
    """Return what the files in a job's output folder say. Raises Failure if there is no such folder.

    now: the present time, for tests
    """
    folder = Folder(output)
    if not os.path.isdir(output):
        problem = "no such folder: expected a job's folder that a launcher has written to"
        raise Failure(Exit.NO_INPUT, f"{folder.path}: {problem}")
    job_folder = os.path.dirname(os.path.abspath(output))
    facts = Facts(json_fields.plain(os.path.basename(job_folder)), json_fields.plain(output), now or time.time())
    _Reader(folder, facts).read()
    return facts


class _Reader:
    def __init__(self, folder: Folder, facts: Facts) -> None:
        self._folder = folder
        self._facts = facts
        self._passes: Passes = {}
        self._training_from: dict[int, float] = {}

    def read(self) -> None:
        job = self._object(self._folder, "job.json")
        self._read_job_events()
        self._add_summary(job)
        self._read_members()
        self._drop_earlier_job()
        self._add_passes()
        self._find_resizes()
        self._facts.saved = self._saved()
        self._facts.lease = self._lease()
        self._read_unjoined()

    # ---- the job's files ---------------------------------------------------------------------------------------------

    def _read_job_events(self) -> None:
        facts, began = self._facts, False
        try:
            found = list(events.iterate(self._folder, _OF_JOB))
        except Failure as failure:
            self._note(failure.message)
            return
        begin = _begin_of_job(found)
        for event, shift in zip(found[begin:], clocks.shifts(found)[begin:], strict=True):
            at = fields.seconds(event.get("at"))
            if at is None:
                continue
            at += shift
            match event["event"]:
                case "gang":
                    self._add_gang(at, event)
                case "generation_begun" | "generation_ended":
                    began = True
                    self._add_generation(fields.object_of(event, "generation"), at, shift)
                case "pass":
                    self._add_job_pass(at, event)
                case "peer_lost" | "peer_returned":
                    peer = fields.object_of(event, "peer")
                    number = fields.number(peer, "rank")
                    if number is not None and len(facts.peers) < _CHANGES:
                        place, pod = Place.of(peer.get("role"), number), fields.text(peer, "pod", 260)
                        is_lost = event["event"] == "peer_lost"
                        facts.peers.append(PeerChange(at, place, pod, is_lost, fields.text(event, "why", 500)))
                case "ended":
                    facts.ends.append((at, fields.code(event, "exit_code") or 0, fields.cause(event)))
                    del facts.ends[:-_ENDS]
                    facts.is_ended = True
        if found and not began:
            self._note(f"{self._folder.path_of(events.NAME)} names no generation")

    def _add_gang(self, at: float, event: Mapping[str, Any]) -> None:
        facts = self._facts
        facts.gangs.append(at)
        facts.is_ended = False
        facts.name = fields.text(event, "job", 260) or facts.name
        self._add_members(event)
        facts.settings = fields.allowed(event, "settings", fields.SETTINGS) or facts.settings
        facts.versions = fields.allowed(event, "versions", fields.VERSIONS) or facts.versions

    def _add_members(self, content: Mapping[str, Any]) -> None:
        """Add the members of a gang. Members of earlier gangs that are not in it are no longer current."""
        listed = content.get("members")
        members = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        if not members:
            return
        for known in self._facts.members.values():
            known.is_current = False
        for content in members[:_MEMBERS]:
            number = fields.number(content, "rank")
            if number is None:
                continue
            member = self._member(Place.of(content.get("role"), number))
            member.role = fields.role(content) or BOTH
            member.pod = fields.text(content, "pod", 260)
            member.is_current = True

    def _add_generation(self, content: Mapping[str, Any], at: float | None, shift: float = 0.0) -> None:
        """Add a generation, or what is new about it. `shift`: is added to its times."""
        number, began = fields.number(content, "number"), fields.seconds(content.get("began"))
        if number is None or began is None or len(self._facts.generations) >= _GENERATIONS:
            return
        began, ended = began + shift, fields.seconds(content.get("ended"))
        ended = None if ended is None else ended + shift
        known = self._facts.generations.setdefault(number, Generation(number, began))
        if at is not None and ended is None and abs(at - began) < 3:
            known.began = at  # with milliseconds
        if ended is not None and known.ended is None:
            known.ended = at if at is not None and abs(at - ended) < 3 else ended
        known.after_pass = fields.number(content, "after_pass")
        known.size = fields.number(content, "trainers")
        known.cause = fields.cause(content) or known.cause

    def _add_job_pass(self, at: float, event: Event) -> None:
        generation, number = fields.number(event, "generation"), fields.number(event, "pass")
        if generation is not None and number is not None and len(self._facts.passes) < 20_000:
            self._facts.passes.setdefault((generation, number), pass_of(event, generation, number, at))

    def _add_summary(self, job: Mapping[str, Any]) -> None:
        """Add what only job.json has: a new hub writes the generations of earlier hubs to it.

        Without a timeline, as after an older version of the launcher, job.json also has the end.
        """
        listed = job.get("generations")
        for generation in listed[-1000:] if isinstance(listed, list) else []:
            if isinstance(generation, dict):
                self._add_generation(generation, None)
        if not self._facts.gangs:
            self._facts.name = fields.text(job, "job", 260) or self._facts.name
            self._add_members(job)
            ended = fields.seconds(job.get("ended"))
            if ended is not None and not self._facts.ends:
                self._facts.ends.append((ended, fields.code(job, "exit_code") or 0, fields.cause(job)))
                self._facts.is_ended = True

    # ---- the members' files ------------------------------------------------------------------------------------------

    def _read_members(self) -> None:
        found = []
        for name in self._folder.folders():
            if match := _FOLDER.fullmatch(name):
                found.append(Place.of(match[1], int(match[2])))
        for place in sorted(found)[:_MEMBERS]:
            self._member(place)
        if len(found) > _MEMBERS:
            self._note(f"{self._folder.path} has {len(found)} members: only {_MEMBERS} are shown")
        members = max(1, len(self._facts.members))
        most = min(max(_READ_AT_MOST // members, _LEAST), _MOST)
        samples = min(max(_SAMPLES // members, 50), _MOST_SAMPLES)
        for place, member in self._facts.members.items():
            folder = self._folder.below(place.folder)
            fold = MemberEvents(member, self._passes, self._training_from, samples)
            try:
                attributes = folder.stat(events.NAME)
                data = folder.read_end(events.NAME, most) or b""
                # Most timelines have no such event. Then the events need not be read twice, nor kept.
                shifts = clocks.shifts(events.parse(data)) if b'"clock_set"' in data else repeat(0.0)
                for event, shift in zip(events.parse(data), shifts, strict=False):
                    fold.add(event, shift)
            except Failure as failure:
                self._note(failure.message)
                continue
            if attributes and attributes.st_size > most:
                self._note(f"{folder.path_of(events.NAME)} is large: only its last {most >> 10} KiB were read")
        self._facts.members = dict(sorted(self._facts.members.items()))

    def _member(self, place: Place) -> Member:
        known = self._facts.members
        if place not in known:
            role = place.role if place.order else BOTH  # events say more about a member that trains
            known[place] = Member(place, role, is_current=not self._facts.gangs)
        return known[place]

    def _drop_earlier_job(self) -> None:
        """Drop the launchers of an earlier job in the same folder, and members that only that job had."""
        facts = self._facts
        begin = facts.gangs[0] - _CLOCKS if facts.gangs else 0.0
        for place, member in list(facts.members.items()):
            member.runs = [run for run in member.runs if run.last >= begin]
            if not member.runs and not member.is_current:
                del facts.members[place]
                continue
            first = member.runs[0].begin if member.runs else begin
            member.samples = [sample for sample in member.samples if sample.at >= first]
            member.deaths = [death for death in member.deaths if death.at >= first]
            member.stops = [at for at in member.stops if at >= first]
            member.warnings = {text: seen for text, seen in member.warnings.items() if seen[1] >= first}

    def _add_passes(self) -> None:
        """Add what only the events of the members have: the numbers of a pass, and further passes."""
        facts = self._facts
        begin = facts.gangs[0] - _CLOCKS if facts.gangs else 0.0
        for key, parts in self._passes.items():
            recent = [part for part in parts if part.at >= begin]
            if not recent or (facts.generations and key[0] not in facts.generations):
                continue
            done = facts.passes.setdefault(key, PassDone(*key, min(part.at for part in recent)))
            if done.loss is None:
                done.loss = _mean([part.loss for part in recent])
            if done.accuracy is None:
                done.accuracy = _mean([part.accuracy for part in recent])
            speeds = finite([part.speed for part in recent])
            done.speed = sum(speeds) if speeds else done.speed
        for number, generation in facts.generations.items():
            at = self._training_from.get(number)
            generation.training_from = at if at is not None and at >= generation.began - _CLOCKS else None

    def _find_resizes(self) -> None:
        history = self._facts.history
        for generation, following in zip_longest(history, history[1:]):
            kind = generation.cause.kind if generation.cause else None
            generation.is_resize = sizes.is_resize(kind, generation.size, following.size if following else None)

    # ---- other files -------------------------------------------------------------------------------------------------

    def _saved(self) -> int | None:
        try:
            return checkpoints.newest(Saves(self._folder.path))
        except Failure as failure:
            self._note(failure.message)
            return None

    def _lease(self) -> Lease | None:
        try:
            lease = LeaseFiles(self._folder.path).latest()
        except Failure as failure:
            self._note(failure.message)
            return None
        if lease is None:
            return None
        # The volume's clock is not known if this user may not write to the folder.
        age = lease.age if lease.age > -_CLOCKS else self._facts.now - lease.changed_at / 1e9
        return Lease(lease.is_released, max(0.0, age))

    def _read_unjoined(self) -> None:
        """Add the end of a pod that never joined. Prefer a cause that is more than a missing pod.

        Of two messages about a missing pod, the longer one says more: only some pods know what Kubernetes says.
        """
        facts = self._facts
        try:
            ends = unjoined.ends(self._folder.path)
        except Failure as failure:
            self._note(failure.message)
            return
        begin = facts.gangs[-1] if facts.gangs else 0.0
        for content in ends:
            at, cause = fields.seconds(content.get("at")), fields.cause(content)
            if at is None or at < begin or cause is None:
                continue
            known = facts.unjoined
            if known is None or (
                known[2].kind == CauseKind.PEERS
                and (cause.kind != CauseKind.PEERS or len(cause.what) > len(known[2].what))
            ):
                facts.unjoined = at, fields.code(content, "exit_code") or 0, cause

    def _object(self, folder: Folder, name: str) -> Mapping[str, Any]:
        try:
            data = folder.read(name)
            return {} if data is None else json_fields.read_object(data)
        except Failure as failure:
            self._note(failure.message)
        except ValueError as error:
            self._note(f"{folder.path_of(name)} cannot be used: {error}")
        return {}

    def _note(self, text: str) -> None:
        if len(self._facts.unread) < _UNREAD:
            self._facts.unread.append(json_fields.plain(text))


def _begin_of_job(found: list[Event]) -> int:
    """Return the index of the present job's first event. After an earlier job, generation numbers begin at 0 again."""
    begin, gang, highest = 0, 0, -1
    for place, event in enumerate(found):
        if event["event"] == "gang":
            gang = place
        elif event["event"] == "generation_begun":
            number = fields.number(fields.object_of(event, "generation"), "number")
            if number is not None and number <= highest:
                begin = gang
            highest = number if number is not None else highest
    return begin


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
