"""How the text of a variable becomes a value. Each parser raises ValueError where it cannot."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from launcher.model import BOTH, PSERVER, TRAINER

BY_ROLE = f"{TRAINER}="  # how LAUNCHER_SERVICE begins where there are roles
EACH_GPU = 0  # the number of trainers where there is to be one for each GPU


def text(value: str) -> str:
    return value


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not low <= int(value) <= high:
            raise ValueError
        return int(value)

    return parse


def seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip()) or float(value) <= 0:
        raise ValueError
    return float(value)


def seconds_or_none(value: str) -> float:
    return 0.0 if re.fullmatch(r"0+(\.0+)?", value.strip()) else seconds(value)


def silence(value: str) -> float:
    """Members say something every 5 s: less than three times that would take a busy node for a lost one."""
    number = seconds(value)
    if number < 15:
        raise ValueError
    return number


def stall(value: str) -> float:
    """A trainer is silent for seconds by the mere import of Paddle."""
    number = seconds_or_none(value)
    if 0 < number < 5:
        raise ValueError
    return number


def switch(value: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if value.lower() not in words:
        raise ValueError
    return words[value.lower()]


def matching(pattern: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError
        return value

    return parse


def count_or_gpus(value: str) -> int:
    return EACH_GPU if value.strip().lower() == "gpus" else whole(1, 64)(value)


def folder_name(value: str) -> str:
    if "/" in value or value in (".", ".."):
        raise ValueError
    return value


def inside(value: str) -> str:
    """A folder below another, as the old start.sh put them together: a slash in front means nothing."""
    path = os.path.normpath(value.strip("/") or ".")
    if path == "." or path.split("/")[0] == "..":
        raise ValueError
    return path


def absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError
    return os.path.normpath(value)


def addresses(value: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in value.split(","))
    if not all(re.fullmatch(r"[0-9A-Za-z.:_%-]+", address) for address in addresses):
        raise ValueError
    return addresses


def by_role(value: str) -> dict[str, tuple[str, ...]]:
    """`a,b` for members that all do the same; `trainer=a,b;pserver=c` where there are roles."""
    if "=" not in value:
        return {BOTH: addresses(value)}
    parts = [part.strip().partition("=") for part in value.split(";") if part.strip()]
    found = {role.strip(): addresses(listed) for role, _, listed in parts}
    if set(found) != {TRAINER, PSERVER} or len(parts) != len(found):
        raise ValueError
    return found
