"""The fields of members, causes and outcomes in the JSON files on the volume, and how such files are read.

Any user who may write to the folder may have changed a file. So each field is checked when the file is read. The
functions that read raise ValueError, whose text says what is wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from launcher.model import Cause, Shape

_VERSION = 1  # of all these files, which have no field `version` yet
_MOST = 10**18
_TEXT_LIMIT = 64 * 1024
_KINDS = {dict: "an object", list: "a list", bool: "true or false"}


def cause_fields(cause: Cause | None, shape: Shape) -> Mapping[str, Any] | None:
    return None if cause is None else {**asdict(cause), **place_fields(cause.rank, shape)}


def place_fields(rank: int | None, shape: Shape) -> Mapping[str, Any]:
    """Return a member's role, and its number within that role. The files call this number `rank`."""
    if rank is None:
        return {"role": None, "rank": None}
    return {"role": shape.role(rank), "rank": shape.number(rank)}


def as_bytes(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"


def read_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the content of a file."""
    try:
        content = json.loads(data, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    version = content.get("version", _VERSION)
    if version != _VERSION:
        raise ValueError("it was written by another version of the launcher: use the same image again")
    return content


def integer(content: Mapping[str, Any], name: str, otherwise: int | None = None, *, most: int = _MOST) -> int:
    """Return an integer from 0 to `most`. If the field is missing, return `otherwise`."""
    value = content.get(name, otherwise)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is not a number from 0 to {most}")
    return value


def number(content: Mapping[str, Any], name: str, most: float) -> float:
    """Return a number from 0 to `most`."""
    value = content.get(name)
    if not isinstance(value, int | float) or type(value) is bool or not 0 <= value <= most:
        raise ValueError(f"{name} is not a number from 0 to {most:g}")
    return float(value)


def text(content: Mapping[str, Any], name: str) -> str:
    """Return a text. Characters that a terminal would interpret are escaped."""
    value = content.get(name)
    if not isinstance(value, str) or len(value) > _TEXT_LIMIT:
        raise ValueError(f"{name} is not a text of at most {_TEXT_LIMIT} characters")
    return plain(value)


def objects(content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects. If the field is missing or null, return an empty list."""
    value = content.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError(f"{name} is not a list of objects")
    return value


def check(content: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """Check that each field is missing, null or of its type. Texts and numbers must be within their limits."""
    for name, kind in kinds.items():
        value = content.get(name)
        if value is None:
            continue
        if kind is str:
            text(content, name)
        elif kind is int:
            integer(content, name)
        elif type(value) is not kind:
            raise ValueError(f"{name} is not {_KINDS[kind]}")


def plain(told: str) -> str:
    """Return the text with all unprintable characters but the line feed escaped, and without lone surrogates."""
    whole = told.encode("utf-8", "backslashreplace").decode()
    return re.sub(r"[^\n]", lambda found: found[0] if found[0].isprintable() else repr(found[0])[1:-1], whole)


def _parse_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number in it is too large")
    return int(digits)


def _parse_float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number in it is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
