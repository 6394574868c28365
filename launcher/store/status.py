"""Describe the state of a job, from its files on the volume."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from launcher.base.files import cannot_read
from launcher.base.table import format_table
from launcher.errors import Exit, Failure
from launcher.model import BOTH, member_folder, member_name, name_and_pod

_COLUMNS = ("rank", "pod", "phase", "since", "last pass", "exit code", "first cause")
_HISTORY = ("generation", "began", "ended", "from", "ended by")
_SHOWN = 20  # of the latest generations


def describe(job_folder: str, *, as_json: bool) -> str:
    """Return the state of the job in this folder, as a table with one row per member or as JSON."""
    output = os.path.join(job_folder, "output")
    job = _read(os.path.join(output, "job.json"))
    members = _members(output, job)
    if as_json:
        return json.dumps({"job": job, "members": members}, indent=1)
    if not members:
        return f"{output}: no member has joined yet: `kubectl get pods` and the pods' logs show what the pods wait for"
    tables = [format_table([_COLUMNS, *(_row(member) for member in members)])]
    generations = [one for one in job.get("generations") or [] if isinstance(one, dict)]
    if len(generations) > 1:
        tables.append(format_table([_HISTORY, *map(_generation, generations[-_SHOWN:])]))
    return "\n\n".join(tables)


def _members(output: str, job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the status of each member. If a member has written no status, return what the hub knows about it."""
    try:
        names = os.listdir(output)
    except OSError as error:
        raise Failure(
            Exit.NO_INPUT, f"{output}: {error.strerror}: expected a job's folder that a launcher has written to"
        ) from None
    found = {}
    for name in names:
        if match := re.fullmatch(r"(node|pserver)_([0-9]+)", name):
            found[match.group(1), int(match.group(2))] = _read(os.path.join(output, name, "status.json"))
    pods = _pods(job)
    members: list[Mapping[str, Any]] = []
    for place in sorted(set(found) | set(pods)):
        if pods and place not in pods and str(found[place].get("since")) < str(job.get("started")):
            continue  # this member is of an earlier run, which had more members
        role, pod = pods.get(place, (None, None))
        unwritten = {"role": role, "rank": place[1], "pod": pod, "phase": "no status"}
        members.append(found.get(place) or unwritten)
    return members


def _pods(job: Mapping[str, Any]) -> dict[tuple[str, int], tuple[Any, Any]]:
    """Return role and pod of each member in job.json. The key is the name and the number of the member's folder."""
    members = job.get("members")
    found: dict[tuple[str, int], tuple[Any, Any]] = {}
    for place, member in enumerate(members if isinstance(members, list) else []):
        known = member if isinstance(member, dict) else {}
        rank, role = known.get("rank", place), known.get("role")
        name, _, _ = member_folder(str(role), "").rpartition("_")
        found[name, rank if isinstance(rank, int) else place] = (role, known.get("pod"))
    return found


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as error:
        raise cannot_read(path, error) from None
    return content if isinstance(content, dict) else {}


def _generation(one: Mapping[str, Any]) -> tuple[object, ...]:
    after = one.get("after_pass")
    start = "the beginning" if after is None else f"after pass {after}"
    return (one.get("number"), one.get("began"), one.get("ended"), start, _describe_cause(one.get("first_cause")))


def _row(member: Mapping[str, Any]) -> tuple[object, ...]:
    rank = member.get("rank") if member.get("role") in (None, BOTH) else _name(member)
    plain = (member.get(key) for key in ("pod", "phase", "since", "last_pass", "exit_code"))
    return (rank, *plain, _describe_cause(member.get("first_cause")))


def _describe_cause(cause: object) -> str | None:
    if not isinstance(cause, dict):
        return None
    member = "" if cause.get("rank") is None else name_and_pod(_name(cause), cause.get("pod"))
    return member + str(cause.get("what"))


def _name(member: Mapping[str, Any]) -> str:
    return member_name(str(member.get("role") or BOTH), member.get("rank"))
