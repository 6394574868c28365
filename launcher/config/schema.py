"""The JSON Schema of all variables, made from their declarations: for editors and for admission policies.

The patterns need neither lookahead nor back-references, so that engines without them (RE2, as in Go) can use them.
Where no such pattern exists, the schema accepts more than the parser, never less.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from launcher.base.bounds import MAX_FILE_NAME, MAX_TEXT, MAX_TIMEOUT
from launcher.config import parsers
from launcher.config.declaration import Variable
from launcher.config.variables import VARIABLES
from launcher.model import PSERVER, ROLES, TRAINER

_Json = dict[str, Any]

_MAX_DIGITS = 10  # that `between` accepts, zeros before the number included
_CONTROL = r"\x00-\x1f\x7f-\xa0\xad"  # most of what is not printable
_LIST = rf"\s*{parsers.ADDRESS}\s*(,\s*{parsers.ADDRESS}\s*)*"
_REFERENCE = r"\$\([A-Za-z_]"  # $(JOB_NAME): Kubernetes fills in the value of another variable


def text() -> str:
    """Return the schema as a file."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> _Json:
    """Return the schema of a document in which variables occur at any depth.

    It fits a mapping of names to values, as in a ConfigMap, and manifests, whose containers have a list `env`.
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Variables of paddle-launcher",
        "properties": {**{known.name: {"$ref": f"#/definitions/{known.name}"} for known in VARIABLES}, "env": _env()},
        "additionalProperties": {"$ref": "#"},
        "items": {"$ref": "#"},
        "definitions": {known.name: of(known) for known in VARIABLES},
    }


def of(variable: Variable) -> _Json:
    """Return the schema of the texts that one variable may have."""
    made: _Json = {"type": "string", "description": f"{variable.meaning} (expected: {variable.expected})"}
    if variable.shown_default is not None:
        made["default"] = variable.shown_default
    accepted = _accepted(variable.parse)
    for each in accepted:
        if "pattern" in each:
            each["patternErrorMessage"] = f"{variable.name}: expected {variable.expected}"  # editors show it
    return made | {"anyOf": [*accepted, {"const": ""}]}  # an empty value counts as unset


def _env() -> _Json:
    """Return the schema of the list `env` of a container."""
    checks = [
        {
            "if": {"properties": {"name": {"const": known.name}}, "required": ["name"]},
            "then": {
                "properties": {"value": {"anyOf": [{"$ref": f"#/definitions/{known.name}"}, {"pattern": _REFERENCE}]}},
            },
        }
        for known in VARIABLES
    ]
    return {"items": {"allOf": checks}}


def _accepted(parse: Callable[[str], Any]) -> list[_Json]:
    """Return schemas of which a text needs to fit one. Raises KeyError for a parser that is not described here."""
    if isinstance(parse, partial):
        return list(_MADE[parse.func](*parse.args))
    return list(_FIXED[parse]())


def _between(low: int, high: int) -> Iterator[_Json]:
    yield _pattern(rf"\s*({_integers(low, high)})\s*")


def _matched(pattern: str) -> Iterator[_Json]:
    yield {"enum": pattern.split("|")} if re.fullmatch(r"[\w|-]+", pattern) else _pattern(pattern)


def _text() -> Iterator[_Json]:
    yield {"maxLength": MAX_TEXT} | _pattern(rf"[^{_CONTROL}]*")


def _sizes() -> Iterator[_Json]:
    nodes = _integers(1, parsers.MAX_NODES)
    yield _pattern(rf"\s*({nodes})(:({nodes}))?\s*")


def _seconds() -> Iterator[_Json]:
    yield _pattern(rf"\s*({_numbers(1)}|0+\.[0-9]*[1-9][0-9]*)\s*")


def _seconds_or_none() -> Iterator[_Json]:
    yield from _seconds()
    yield _pattern(r"\s*0+(\.0+)?\s*")


def _silence() -> Iterator[_Json]:
    yield _pattern(rf"\s*({_numbers(parsers.MIN_SILENCE)})\s*")


def _stall() -> Iterator[_Json]:
    yield {"const": "auto"}
    yield _pattern(rf"\s*({_any_case('auto')}|0+(\.0+)?|{_numbers(parsers.MIN_STALL)})\s*")


def _stages() -> Iterator[_Json]:
    stage = rf"\s*({_integers(2, parsers.MAX_STAGES)})\s*"
    yield _pattern(rf"{stage}(,{stage})*")


def _switch() -> Iterator[_Json]:
    yield {"enum": ["1", "0"]}
    yield _pattern("|".join(map(_any_case, parsers.SWITCH)))


def _count_or_gpus() -> Iterator[_Json]:
    yield {"const": "gpus"}
    yield _pattern(rf"\s*({_any_case('gpus')}|{_integers(1, parsers.MAX_PER_NODE)})\s*")


def _folder_name() -> Iterator[_Json]:
    yield {"maxLength": MAX_FILE_NAME, "not": {"enum": [".", ".."]}} | _pattern("[^/]*")


def _relative_folder() -> Iterator[_Json]:
    yield {"not": _pattern(r"/*(\.?/+)*(\.|\.\.(/.*)?)?")}  # `a/../..` cannot be excluded by a pattern


def _absolute() -> Iterator[_Json]:
    yield {"pattern": "^/"}


def _by_role() -> Iterator[_Json]:
    between, around = r"(\s*;)+", r"(\s*;)*"
    yield _pattern(rf"{_LIST}")
    for roles in ((TRAINER, PSERVER), ROLES):
        lists = [rf"\s*{role}\s*={_LIST}" for role in roles]
        orders = "|".join(between.join(order) for order in itertools.permutations(lists))
        yield _pattern(rf"{around}({orders}){around}\s*")


_MADE: dict[Callable[..., Any], Callable[..., Iterator[_Json]]] = {
    parsers.between: _between,
    parsers.matched: _matched,
}
_FIXED: dict[Callable[[str], Any], Callable[[], Iterator[_Json]]] = {
    parsers.text: _text,
    parsers.sizes: _sizes,
    parsers.seconds: _seconds,
    parsers.seconds_or_none: _seconds_or_none,
    parsers.silence: _silence,
    parsers.stall: _stall,
    parsers.stages: _stages,
    parsers.switch: _switch,
    parsers.count_or_gpus: _count_or_gpus,
    parsers.folder_name: _folder_name,
    parsers.relative_folder: _relative_folder,
    parsers.absolute: _absolute,
    parsers.by_role: _by_role,
}


def _pattern(pattern: str) -> _Json:
    return {"pattern": f"^({pattern})$"}


def _any_case(word: str) -> str:
    """Return a pattern for a word in small or capital letters."""
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in word)


def _integers(low: int, high: int) -> str:
    """Return a pattern for the integers from `low` to `high`, with zeros before them, up to _MAX_DIGITS digits."""
    parts = []
    for pattern, digits in _ranges(low, high):
        zeros = _MAX_DIGITS - digits
        parts.append(f"0{{0,{zeros}}}{pattern}")
    return "|".join(parts)


def _numbers(low: int) -> str:
    """Return a pattern for the numbers from `low` to MAX_TIMEOUT, with or without a fraction."""
    high = int(MAX_TIMEOUT)
    below = "|".join(pattern for pattern, _ in _ranges(low, high - 1))
    return rf"0*({below})(\.[0-9]+)?|0*{high}(\.0+)?"


def _ranges(low: int, high: int) -> Iterator[tuple[str, int]]:
    """Yield patterns that together match exactly the integers from `low` to `high`, each with its number of digits.

    Each pattern is a common beginning, a range of one digit, and any digits: `10[0-4][0-9]{2}` for 10000 to 10499.
    """
    while low <= high:
        free = 0  # digits at the end that may have any value
        while low % 10 ** (free + 1) == 0 and low + 10 ** (free + 1) - 1 <= high and len(str(low)) > free + 1:
            free += 1
        step = 10**free
        digit = low // step % 10
        last = min(9, digit + (high - low + 1) // step - 1)
        chosen = str(digit) if digit == last else f"[{digit}-{last}]"
        rest = "[0-9]" if free == 1 else f"[0-9]{{{free}}}" if free else ""
        yield str(low // step)[:-1] + chosen + rest, len(str(low))
        low += (last - digit + 1) * step
