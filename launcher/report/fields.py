"""Check the fields of events: any user who may write to the folder may have changed a file.

A field that is missing or wrong is None, or an empty text. All texts are short and printable, and conceal secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from launcher.base.bounds import MAX_NUMBER
from launcher.config.variables import VARIABLES
from launcher.model import BOTH, ROLES
from launcher.report.facts import FirstCause
from launcher.report.secrets import conceal
from launcher.store import json_fields

_TEXT, _LINE, _LINES = 2000, 400, 60
_INFINITE = 1e30  # a loss of this size has diverged, and cannot be drawn beside others
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_NEVER = re.compile(r"SECRET|TOKEN|PASSWORD|TLS|KEY|CREDENTIAL", re.IGNORECASE)
SETTINGS = frozenset(variable.name for variable in VARIABLES if not _NEVER.search(variable.name))
VERSIONS = frozenset(
    ("launcher", "python", "paddle", "paddlepaddle", "paddlepaddle-gpu", "cuda", "cudnn", "numpy", "kernel", "image")
)


def seconds(stamp: object) -> float | None:
    """Return the time of a stamp such as `2026-11-19T11:10:00.250Z`, with or without milliseconds."""
    if not isinstance(stamp, str) or not 20 <= len(stamp) <= 24 or stamp[-1] != "Z":
        return None
    try:
        return datetime.fromisoformat(stamp[:-1]).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None


def text(content: Mapping[str, Any], name: str, limit: int = _TEXT) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        return ""
    shown = conceal(json_fields.plain(value[:limit]))
    return shown if len(value) <= limit else f"{shown} ..."


def role(content: Mapping[str, Any]) -> str | None:
    """Return the role of a member, or None. The name of the member, also in names of files, begins with the role."""
    value = content.get("role")
    return value if value in (BOTH, *ROLES) else None


def number(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    return value if type(value) is int and 0 <= value <= MAX_NUMBER else None


def code(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    return value if type(value) is int and abs(value) < 1 << 31 else None


def decimal(content: Mapping[str, Any], name: str) -> float | None:
    """Return a number. The number may be written as a text: `nan`, `inf` or `-inf`. A number that large is infinite."""
    value = content.get(name)
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    if isinstance(value, int | float) and type(value) is not bool:
        return float(value) if abs(value) < _INFINITE else math.copysign(math.inf, value)
    return None


def object_of(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}


def lines(content: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the last lines of a list of texts."""
    value = content.get(name)
    found = value[-_LINES:] if isinstance(value, list) else []
    texts = (json_fields.plain(line[:_LINE]).replace("\n", " ") for line in found if isinstance(line, str))
    return tuple(map(conceal, texts))


def cause(content: Mapping[str, Any], name: str = "first_cause") -> FirstCause | None:
    found = object_of(content, name)
    what = text(found, "what")
    if not what:
        return None
    return FirstCause(
        kind=text(found, "kind", 40),
        role=role(found),
        rank=number(found, "rank"),
        pod=text(found, "pod", 260),
        what=what,
        code=code(found, "code"),
        tail=lines(found, "tail"),
        final=found.get("final") is True,
    )


def allowed(content: Mapping[str, Any], name: str, names: frozenset[str]) -> dict[str, str]:
    """Return the fields of an object whose names are allowed, as texts."""
    found = object_of(content, name)
    known = {key: found[key] for key in sorted(names & found.keys()) if isinstance(found[key], str | int | float)}
    return {key: json_fields.plain(str(value)[:_LINE]) for key, value in known.items()}
