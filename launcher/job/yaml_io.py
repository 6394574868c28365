"""YAML as Kubernetes reads and writes it: several documents, each with its text, and lists of objects taken apart."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from launcher.errors import Exit, Failure
from launcher.job.spec import Json

_MERGE = "tag:yaml.org,2002:merge"
_LISTS = ("List", "PaddleJobList")
# What kubectl takes for a number or a truth, and PyYAML does not: written without quotes it would be another value.
_LIKE_A_NUMBER = re.compile(r"(?=.*[0-9])[-+.0-9][-+.0-9_a-fox]*|[yn]", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """One object, and how it was written where it had a document of its own."""

    number: int
    value: Json
    text: str | None


class _Loader(yaml.SafeLoader):
    """Takes nothing for a number or a date that kubectl does not, as 12:30; a field that is there twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value}: is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes everything out where it is used, and long texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _LIKE_A_NUMBER.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _without(tag: str) -> None:
    _Loader.yaml_implicit_resolvers = {
        first: [(known, pattern) for known, pattern in resolvers if known != tag]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }


for _tag, _pattern, _first in (
    ("timestamp", None, ""),
    ("int", r"[-+]?(0b[0-1_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
):
    _without(f"tag:yaml.org,2002:{_tag}")
    if _pattern:
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"({_pattern})$"), list(_first))
_Dumper.add_representer(str, _text)


def read(data: bytes, name: str) -> list[Document]:
    """The objects of a file, in order. Empty documents are none."""
    try:
        text = data.decode("utf-8-sig")
        return list(_documents(text, name))
    except UnicodeDecodeError:
        raise Failure(Exit.CONFIG, f"{name}: expected YAML in UTF-8") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Failure(Exit.CONFIG, f"{name}: no YAML: {_said(error)}") from None


def written(value: Json) -> str:
    """An object as a document."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text


def _documents(text: str, name: str) -> Iterator[Document]:
    values = list(yaml.load_all(text, _Loader))
    for number, (value, own) in enumerate(zip(values, _texts(text), strict=True), 1):
        if value is None:
            continue
        if not isinstance(value, dict):
            raise Failure(Exit.CONFIG, f"{name}: document {number}: {value!r:.60}: expected a Kubernetes object")
        if value.get("kind") not in _LISTS:
            yield Document(number, value, own)
            continue
        for item in value.get("items") or []:
            if not isinstance(item, dict):
                raise Failure(Exit.CONFIG, f"{name}: document {number}: {item!r:.60}: expected a Kubernetes object")
            yield Document(number, item, None)


def _texts(text: str) -> Iterator[str]:
    """Each document as it is written, without what separates it from others."""
    begin = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.DocumentStartEvent):
            mark = event.end_mark if event.explicit else event.start_mark
            begin = mark.index if mark else 0
        elif isinstance(event, yaml.DocumentEndEvent):
            end = event.start_mark.index if event.start_mark else len(text)
            yield text[begin:end].strip("\n") + "\n"


def _said(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "nested too deeply"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
