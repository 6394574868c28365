"""Parsers for the values of variables. Each parser raises ValueError if the text is not valid.

schema.py describes the texts that each parser accepts: change both together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Literal

from launcher.base.bounds import MAX_FILE_NAME, MAX_TIMEOUT, is_text
from launcher.model import BOTH, PSERVER, ROLES, TRAINER

BY_ROLE = f"{TRAINER}="  # LAUNCHER_SERVICE begins with this if LAUNCHER_ROLE is set
MIN_SILENCE = 15
MIN_STALL = 5
MAX_PER_NODE = 64
ADDRESS = r"[0-9A-Za-z.:_%-]+"
SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
MAX_NODES = 100_000
MAX_STAGES = 1000
ONE_PER_GPU = 0  # as the number of trainers per node: one trainer per GPU


def text(value: str) -> str:
    if not is_text(value):
        raise ValueError
    return value


def integer(low: int, high: int) -> Callable[[str], int]:
    return partial(between, low, high)


def between(low: int, high: int, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not low <= int(value) <= high:
        raise ValueError
    return int(value)


def sizes(value: str) -> tuple[int, int]:
    """Parse `3`, or `2:5`: the least and the most nodes of an elastic job."""
    match = re.fullmatch(r"\s*([0-9]{1,10})(?::([0-9]{1,10}))?\s*", value)
    if not match:
        raise ValueError
    least, most = int(match[1]), int(match[2] or match[1])
    if not 1 <= least <= most <= MAX_NODES:
        raise ValueError
    return least, most


def seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip()) or not 0 < float(value) <= MAX_TIMEOUT:
        raise ValueError
    return float(value)


def seconds_or_none(value: str) -> float:
    return 0.0 if re.fullmatch(r"0+(\.0+)?", value.strip()) else seconds(value)


def silence(value: str) -> float:
    """Parse LAUNCHER_SILENCE. The minimum is three heartbeats of 5 s, since a busy node may send heartbeats late."""
    number = seconds(value)
    if number < MIN_SILENCE:
        raise ValueError
    return number


def stall(value: str) -> float | Literal["auto"]:
    """Parse LAUNCHER_STALL_TIMEOUT. The minimum is 5 s, since the import of Paddle prints nothing for seconds.

    0 means no limit.
    """
    if value.strip().lower() == "auto":
        return "auto"
    number = seconds_or_none(value)
    if 0 < number < MIN_STALL:
        raise ValueError
    return number


def switch(value: str) -> bool:
    if value.lower() not in SWITCH:
        raise ValueError
    return SWITCH[value.lower()]


def matching(pattern: str) -> Callable[[str], str]:
    return partial(matched, pattern)


def matched(pattern: str, value: str) -> str:
    if not re.fullmatch(pattern, value):
        raise ValueError
    return value


def count_or_gpus(value: str) -> int:
    return ONE_PER_GPU if value.strip().lower() == "gpus" else between(1, MAX_PER_NODE, value)


def folder_name(value: str) -> str:
    if "/" in value or value in (".", "..") or len(os.fsencode(value)) > MAX_FILE_NAME:
        raise ValueError
    return value


def relative_folder(value: str) -> str:
    """Parse a path below another folder. Ignore a leading slash, as start.sh of 2016 does."""
    path = os.path.normpath(value.strip("/") or ".")
    if path == "." or path.split("/")[0] == "..":
        raise ValueError
    return path


def absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError
    return os.path.normpath(value)


def stages(value: str) -> tuple[int, ...]:
    """Parse LAUNCHER_STAGE: `2`, or `2,2,3`."""
    return tuple(between(2, MAX_STAGES, part) for part in value.split(","))


def addresses(value: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in value.split(","))
    if not all(re.fullmatch(ADDRESS, address) for address in addresses):
        raise ValueError
    return addresses


def by_role(value: str) -> dict[str, tuple[str, ...]]:
    """Parse LAUNCHER_PEERS: `a,b` without roles, `trainer=a,b;pserver=c` with roles, and `heter=d`."""
    if "=" not in value:
        return {BOTH: addresses(value)}
    parts = [part.strip().partition("=") for part in value.split(";") if part.strip()]
    of_roles = {role.strip(): addresses(listed) for role, _, listed in parts}
    if set(of_roles) not in ({TRAINER, PSERVER}, set(ROLES)) or len(parts) != len(of_roles):
        raise ValueError
    return of_roles
