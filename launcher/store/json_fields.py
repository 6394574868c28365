"""The fields of members, causes and outcomes in the JSON files on the volume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from launcher.base.clock import utc_now
from launcher.model import Cause, Member, Shape, Snapshot


def member_status(job: str, member: Member, snapshot: Snapshot, shape: Shape) -> Mapping[str, Any]:
    """Return the content of a member's status.json."""
    outcome = snapshot.outcome
    return {
        "job": job,
        **place_fields(member.rank, shape),
        "pod": member.pod,
        "uid": member.uid,
        "phase": snapshot.phase,
        "since": snapshot.since,
        "generation": snapshot.generation,
        "last_pass": snapshot.last_pass,
        "exit_code": None if outcome is None else int(outcome.code),
        "first_cause": cause_fields(outcome.cause if outcome else None, shape),
        "written": utc_now(),
    }


def cause_fields(cause: Cause | None, shape: Shape) -> Mapping[str, Any] | None:
    return None if cause is None else {**asdict(cause), **place_fields(cause.rank, shape)}


def place_fields(rank: int | None, shape: Shape) -> Mapping[str, Any]:
    """Return a member's role, and its number within that role. The files call this number `rank`."""
    if rank is None:
        return {"role": None, "rank": None}
    return {"role": shape.role(rank), "rank": shape.number(rank)}


def as_bytes(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"
