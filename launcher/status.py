"""What the volume says about a job: a row a member."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.errors import Exit, Failure
from launcher.report import whose
from launcher.roles import BOTH, called, folder
from launcher.volume import cannot_read, shown

_COLUMNS = ("rank", "pod", "phase", "since", "last pass", "exit code", "first cause")


def describe(job_folder: str, *, as_json: bool) -> str:
    """The job's state as a table or as JSON."""
    output = os.path.join(job_folder, "output")
    members = _members(output)
    if as_json:
        return json.dumps({"job": _read(os.path.join(output, "job.json")), "members": members}, indent=1)
    if not members:
        return f"{output}: no member has joined yet: `kubectl get pods` and their logs tell what they wait for"
    return _table([_COLUMNS, *(_row(member) for member in members)])


def _members(output: str) -> list[Mapping[str, Any]]:
    """The newest word of each member; one that never wrote any stands there with what the hub knew of it."""
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
    job = _read(os.path.join(output, "job.json"))
    pods = _pods(job)
    members: list[Mapping[str, Any]] = []
    for place in sorted(set(found) | set(pods)):
        if pods and place not in pods and str(found[place].get("since")) < str(job.get("started")):
            continue  # of an earlier run with more members
        role, pod = pods.get(place, (None, None))
        silent = {"role": role, "rank": place[1], "pod": pod, "phase": "no word"}
        members.append(found.get(place) or silent)
    return members


def _pods(job: Mapping[str, Any]) -> dict[tuple[str, int], tuple[Any, Any]]:
    """Role and pod of each member that the hub knew, by the name and number of its folder."""
    members = job.get("members")
    found: dict[tuple[str, int], tuple[Any, Any]] = {}
    for place, member in enumerate(members if isinstance(members, list) else []):
        known = member if isinstance(member, dict) else {}
        rank, role = known.get("rank", place), known.get("role")
        name, _, _ = folder(str(role), "").rpartition("_")
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


def _row(member: Mapping[str, Any]) -> tuple[str, ...]:
    cause = member.get("first_cause")
    words = None
    if isinstance(cause, dict):
        words = str(cause.get("what"))
        if cause.get("rank") is not None:
            words = whose(_called(cause), cause.get("pod")) + words
    rank = member.get("rank") if member.get("role") in (None, BOTH) else _called(member)
    plain = (member.get(key) for key in ("pod", "phase", "since", "last_pass", "exit_code"))
    return tuple("-" if value is None else shown(str(value)) for value in (rank, *plain, words))


def _called(somebody: Mapping[str, Any]) -> str:
    return called(str(somebody.get("role") or BOTH), somebody.get("rank"))


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
