"""Times, numbers and events as the live view shows them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from launcher.base.file_errors import printable
from launcher.live.view import EventLine
from launcher.model import BOTH, CauseKind, member_name, name_and_pod

_LONGEST = 500  # characters of a text


def line(text: object) -> str:
    """Return any text as one printable line."""
    return printable(" ".join(str(text)[:_LONGEST].split()))


def clock(at: float) -> str:
    """Return the local time of day, such as `14:03:07`."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


def age(seconds: float) -> str:
    """Return a time since something happened, as kubectl does: `7s`, `3m`, `2h7m`, `3d`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60}s" if whole % 60 else f"{whole // 60}m"
    if whole < 10_800:
        return f"{whole // 60}m"
    if whole < 28_800:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    if whole < 172_800:
        return f"{whole // 3600}h"
    return f"{whole // 86_400}d"


def loss(value: float | None) -> str:
    """Return four digits: `0.2481`, `12.30`, `nan`. A small loss has three: `1.00e-05`."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if not size:
        return "0"
    if not 1e-3 <= size < 1e5:
        return f"{value:.2e}"
    return f"{value:.{4 if size < 10 else 2 if size < 1000 else 0}f}"


def speed(value: float | None) -> str:
    """Return `5,312` or `3.8`."""
    if value is None:
        return ""
    return f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.2e}"


def ranks(numbers: Sequence[int]) -> str:
    """Return sorted numbers as `0-9, 12`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def seconds_of(event: Mapping[str, Any]) -> float:
    """Return the time of an event in seconds since 1970."""
    try:
        return datetime.strptime(str(event["at"]), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return 0.0


def cause(told: object) -> str:
    """Return a cause in one line, with the name of the member at fault, or "" if there is none."""
    if not isinstance(told, dict):
        return ""
    named = "" if told.get("rank") is None else name_and_pod(_member(told), told.get("pod"))
    return line(f"{named}{told.get('what')}")


def own_cause(told: Mapping[str, Any]) -> str:
    """Return why a member has ended, from its status: the whole cause only if this member is at fault."""
    first = told.get("first_cause")
    if not isinstance(first, dict):
        return ""
    if first.get("rank") is None:
        return cause(first)
    if (first.get("role"), first.get("rank")) == (told.get("role"), told.get("rank")):
        return line(first.get("what"))
    return f"because of {_member(first)}"


def job_event(event: Mapping[str, Any], size_before: object = None) -> EventLine | None:
    """Return an event of the job in words, or None if it says nothing to a reader.

    size_before: how many trainers the generation before had, or None
    """
    at, peer, told = seconds_of(event), event.get("peer"), ""
    generation = event.get("generation")
    if not isinstance(peer, dict):
        peer = {}
    member = name_and_pod(_member(peer), peer.get("pod"))
    problem = cause(event.get("first_cause"))
    match event["event"]:
        case "gang":
            members = event.get("members")
            told = f"all {len(members) if isinstance(members, list) else '?'} members have joined"
        case "generation_begun" if isinstance(generation, dict):
            after = generation.get("after_pass")
            told = f"generation {generation.get('number')} begins"
            told += "" if after is None else f" after pass {after}"
            told += _new_size(generation.get("trainers"), size_before)
        case "generation_ended" if isinstance(generation, dict):
            problem = why = cause(generation.get("first_cause"))
            told = f"generation {generation.get('number')} has ended{': ' if why else ''}{why}"
            if _kind(generation.get("first_cause")) == CauseKind.RESIZED:
                problem = ""
        case "pass":
            told = f"pass {event.get('pass')} is done"
        case "pass_repeated":
            number = event.get("pass")
            told = "the training begins again" if number is None else f"pass {number} was interrupted, and is repeated"
        case "newcomers":
            count = event.get("count")
            told = f"{count} {'member waits' if count == 1 else 'members wait'} until the job grows"
        case "peer_lost":
            problem = str(event.get("why") or "lost")
            told = f"{member}{problem}"
        case "pod_ended":
            problem = str(event.get("why") or "ended")
            told = f"{member}Kubernetes says: {problem}"
        case "peer_returned":
            told = f"{member}connected again"
        case "ended":
            told = f"the job has failed: exit code {event.get('exit_code')}" if problem else "the job is complete"
    return EventLine(at, line(told), bool(problem)) if told else None


def member_event(name: str, event: Mapping[str, Any]) -> EventLine | None:
    """Return an event of one member in words, or None if the events of the job say it, too."""
    told = ""
    match event["event"]:
        case "process_ended":
            how = "ran out of memory" if event.get("out_of_memory") else f"ended with {event.get('exit_code')}"
            has_failed = event.get("out_of_memory") or event.get("exit_code")
            told = f"its {event.get('process')} {how}" if has_failed else ""
        case "stop_requested":
            told = "got SIGTERM"
        case "warning":
            told = f"warning: {event.get('text')}"
    return EventLine(seconds_of(event), line(f"{name}: {told}"), is_problem=True) if told else None


def _new_size(size: object, before: object) -> str:
    if type(size) is not int or type(before) is not int or size == before:
        return ""
    return f", with {size} trainers instead of {before}"


def _kind(first_cause: object) -> object:
    return first_cause.get("kind") if isinstance(first_cause, dict) else None


def _member(told: Mapping[str, Any]) -> str:
    return member_name(str(told.get("role") or BOTH), told.get("rank"))
