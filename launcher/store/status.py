"""Describe the state of a job, from its files on the volume."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launcher.base import file_errors
from launcher.base.clock import duration
from launcher.base.files import Folder
from launcher.base.passes import pass_folder
from launcher.base.table import format_table
from launcher.errors import Exit, Failure
from launcher.model import BOTH, ROLES, CauseKind, Saves, member_folder, member_name, name_and_pod, role_order
from launcher.store import checkpoints, json_fields, sizes
from launcher.store.lease_files import LeaseFiles

Place = tuple[str, int]  # the name and the number of a member's folder

_COLUMNS = ("rank", "pod", "phase", "since", "last pass", "exit code", "first cause")
_HISTORY = ("generation", "began", "ended", "from", "ended by")
_SIZED_HISTORY = ("generation", "trainers", *_HISTORY[1:])
_SHOWN = 20  # of the latest generations
ACTIVE = ("starting", "training", "serving", "trained", "restarting", "finishing", "ending")  # phases of a gang
_QUIET = 30.0  # seconds. A hub renews its lease every 5 s, and a launcher that ends writes its status within 3 s
MEMBER_FOLDER = re.compile(r"(node|pserver|heter)_(0|[1-9][0-9]{0,8})")
_STATUS_FIELDS = {
    **dict.fromkeys(("role", "pod", "phase", "since"), str),
    **dict.fromkeys(("rank", "last_pass", "exit_code"), int),
    "first_cause": dict,
}
_GENERATION_FIELDS = {
    **dict.fromkeys(("number", "after_pass", "trainers"), int),
    **dict.fromkeys(("began", "ended"), str),
    "first_cause": dict,
}
_CAUSE_FIELDS = {"what": str, "role": str, "rank": int, "pod": str}
_MEMBER_FIELDS = {"role": str, "rank": int, "pod": str}


def describe(job_folder: str, *, as_json: bool) -> str:
    """Return the state of the job in this folder, as a table with one row per member or as JSON.

    Files that cannot be used are named below the table, or in the field `unusable`.
    """
    output = Folder(os.path.join(job_folder, "output"))
    unusable: list[str] = []
    job = read_job(output, unusable)
    members = _members(output, job, unusable)
    saved = newest_pass(output)
    if as_json:
        found = {"job": job, "members": members, "saved_pass": saved}
        return json.dumps(found | ({"unusable": unusable} if unusable else {}), indent=1)
    if not members:
        hint = "`kubectl get pods` and the pods' logs show what the pods wait for"
        return "\n".join([f"{output.path}: no member has joined yet: {hint}", *unusable])
    tables = [format_table([_COLUMNS, *(_row(member) for member in members)])]
    generations = job.get("generations") or []
    if len(generations) > 1:
        tables.append(_history(generations))
    if saved is not None:
        tables.append(f"newest saved pass: {saved} ({pass_folder(output.path, saved)})")
    if any("silent_seconds" in member for member in members):
        tables.append(
            "not written: this launcher was killed, or could not write to the volume when it ended. Look at its pod "
            "(`kubectl describe pod`) and at the free space of the volume"
        )
    return "\n\n".join([*tables, *unusable])


def newest_pass(output: Folder) -> int | None:
    try:
        return checkpoints.newest(Saves(output.path))
    except Failure:
        return None


def _members(output: Folder, job: Mapping[str, Any], unusable: list[str]) -> list[Mapping[str, Any]]:
    """Return the status of each member. If a member has written no status, return what the hub knows about it."""
    found = {}
    try:
        names = os.listdir(output.path)
    except OSError as error:
        raise Failure(
            Exit.NO_INPUT, f"{output.path}: {error.strerror}: expected a job's folder that a launcher has written to"
        ) from None
    is_over = gang_is_over(output, job)
    for name in sorted(names):
        if match := MEMBER_FOLDER.fullmatch(name):
            folder = output.below(name)
            member = read_member(folder, unusable)
            silent = silence(folder) if is_over and member.get("phase") in ACTIVE else 0.0
            found[match[1], int(match[2])] = member | ({"silent_seconds": int(silent)} if silent else {})
    return list(members_of_run(job, found).values())


def members_of_run(job: Mapping[str, Any], found: Mapping[Place, Mapping[str, Any]]) -> dict[Place, Mapping[str, Any]]:
    """Return the status of each member, without members of an earlier run that had more members.

    found: the content of each status.json. For a member that has none, the result has what the hub knows about it.
    """
    pods = places(job)
    members: dict[Place, Mapping[str, Any]] = {}
    for place in sorted(set(found) | set(pods), key=_in_rank_order):
        if pods and place not in pods and str(found[place].get("since")) < str(job.get("started")):
            continue
        role, pod = pods.get(place, (None, None))
        unwritten = {"role": role, "rank": place[1], "pod": pod, "phase": "no status"}
        members[place] = found.get(place) or unwritten
    return members


def _in_rank_order(place: Place) -> tuple[int, int]:
    folder, number = place
    return role_order(folder if folder in ROLES else BOTH), number


def gang_is_over(output: Folder, job: Mapping[str, Any]) -> bool:
    """Return whether no gang trains into the folder: its lease is released, or no hub renews it.

    A job without an identity has no lease. Its gang is over if the hub has written its end.
    """
    try:
        lease = LeaseFiles(output.path).latest()
    except Failure:
        lease = None
    if lease is None:
        return job.get("ended") is not None
    return lease.is_released or time.time() - lease.changed_at / 1e9 > _QUIET


def silence(folder: Folder) -> float:
    """Return for how many seconds a status was not written, or 0 if it was written just now."""
    try:
        found = folder.stat("status.json")
    except Failure:
        return 0.0
    silent = time.time() - found.st_mtime if found else 0.0
    return silent if silent > _QUIET else 0.0


def places(job: Mapping[str, Any]) -> dict[Place, tuple[Any, Any]]:
    """Return role and pod of each member in job.json. The key is the name and the number of the member's folder."""
    found: dict[Place, tuple[Any, Any]] = {}
    for place, member in enumerate(job.get("members") or []):
        rank, role = member.get("rank"), member.get("role")
        name, _, _ = member_folder(str(role), "").rpartition("_")
        found[name, place if rank is None else rank] = (role, member.get("pod"))
    return found


def read_job(output: Folder, unusable: list[str]) -> dict[str, Any]:
    """Return the content of job.json, or {} if it is missing. Add a sentence to `unusable` if it cannot be used."""
    return _read(output, "job.json", _check_job, unusable)


def read_member(folder: Folder, unusable: list[str]) -> dict[str, Any]:
    """Return the content of status.json, or {} if it is missing. Add a sentence to `unusable` if it cannot be used."""
    return _read(folder, "status.json", check_member, unusable)


def _read(folder: Folder, name: str, check: Callable[[dict[str, Any]], None], unusable: list[str]) -> dict[str, Any]:
    try:
        data = folder.read(name)
        if data is None:
            return {}
        content = json_fields.read_object(data)
        check(content)
    except Failure as failure:
        unusable.append(failure.message)
    except ValueError as error:
        advice = "remove this file; a launcher that runs writes it again when its state changes"
        unusable.append(file_errors.unusable(folder.path_of(name), str(error), advice).message)
    else:
        return content
    return {}


def _check_job(content: dict[str, Any]) -> None:
    json_fields.check(content, {"job": str, "started": str, "ended": str, "members": list, "generations": list})
    for member in json_fields.objects(content, "members"):
        json_fields.check(member, _MEMBER_FIELDS)
    for generation in json_fields.objects(content, "generations"):
        json_fields.check(generation, _GENERATION_FIELDS)
        json_fields.check(generation.get("first_cause") or {}, _CAUSE_FIELDS)


def check_member(content: Mapping[str, Any]) -> None:
    """Raise ValueError if a field of status.json has a wrong type or is out of bounds."""
    json_fields.check(content, _STATUS_FIELDS)
    json_fields.check(content.get("first_cause") or {}, _CAUSE_FIELDS)


def _history(generations: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the latest generations. If their sizes differ, it has their sizes."""
    shown = generations[-_SHOWN:]
    counts = [one.get("trainers") for one in shown]
    rows = [_generation(one, following) for one, following in zip(shown, [*counts[1:], None], strict=True)]
    if not sizes.vary(counts):
        return format_table([_HISTORY, *rows])
    sized = [(row[0], count, *row[1:]) for row, count in zip(rows, counts, strict=True)]
    return format_table([_SIZED_HISTORY, *sized])


def _generation(one: Mapping[str, Any], next_size: int | None) -> tuple[object, ...]:
    after, cause = one.get("after_pass"), one.get("first_cause") or {}
    start = "the beginning" if after is None else f"after pass {after}"
    ended_by = describe_cause(cause or None)
    if cause.get("kind") != CauseKind.RESIZED and sizes.is_resize(cause.get("kind"), one.get("trainers"), next_size):
        ended_by = f"a change of size to {next_size}: {ended_by}"
    return (one.get("number"), one.get("began"), one.get("ended"), start, ended_by)


def _row(member: Mapping[str, Any]) -> tuple[object, ...]:
    rank = member.get("rank") if member.get("role") in (None, BOTH) else _name(member)
    phase = member.get("phase")
    if "silent_seconds" in member:
        phase = f"{phase}? not written for {duration(member['silent_seconds'])}"
    plain = (member.get(key) for key in ("since", "last_pass", "exit_code"))
    return (rank, member.get("pod"), phase, *plain, describe_cause(member.get("first_cause")))


def describe_cause(cause: object) -> str | None:
    if not isinstance(cause, dict):
        return None
    member = "" if cause.get("rank") is None else name_and_pod(_name(cause), cause.get("pod"))
    return member + str(cause.get("what"))


def _name(member: Mapping[str, Any]) -> str:
    return member_name(str(member.get("role") or BOTH), member.get("rank"))
