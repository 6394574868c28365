"""Read and write YAML as Kubernetes does: a file may have several documents, and each item of a List is an object."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from launcher.errors import Exit, Failure
from launcher.job.spec import Json
from launcher.job.yaml_nodes import NodeCheck

_LISTS = ("List", "PaddleJobList")
# Strings that kubectl reads as numbers or booleans, but PyYAML does not: they must be written with quotes.
_LIKE_A_NUMBER = re.compile(r"(?=.*[0-9])[-+.0-9][-+.0-9_a-fox]*|[yn]", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """One Kubernetes object, and its original text. `text` is None if the object was an item of a list.

    number: the number of the YAML document in the file, 1 for the first
    """

    number: int
    value: Json
    text: str | None


class _Loader(yaml.SafeLoader):
    """Reads a value as a number only if kubectl does (12:30 is text), and never as a date.

    Refuses a document that `NodeCheck` refuses, before any alias is written out.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes = NodeCheck(self)

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: yaml.Mark) -> list[str]:
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError):  # of chr()
            problem = "expected the number of a Unicode character, which is at most 10FFFF, after \\U"
            raise yaml.scanner.ScannerError(None, None, problem, self.get_mark()) from None

    def compose_document(self) -> yaml.Node:
        document = super().compose_document()
        assert document is not None  # the stream has a document here
        self._nodes.check(document)
        return document


class _Dumper(yaml.SafeDumper):
    """Writes no anchors and aliases, and writes texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _LIKE_A_NUMBER.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _remove_resolver(tag: str) -> None:
    _Loader.yaml_implicit_resolvers = {
        first: [(known, pattern) for known, pattern in resolvers if known != tag]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }


for _tag, _pattern, _first in (
    ("timestamp", None, ""),
    ("value", None, ""),
    ("int", r"[-+]?(0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0[0-7_]*|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
):
    _remove_resolver(f"tag:yaml.org,2002:{_tag}")
    if _pattern:
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"({_pattern})$"), list(_first))
_Dumper.add_representer(str, _represent_text)


def read(data: bytes, name: str) -> list[Document]:
    """Return one Document per object in the YAML text. Raises Failure if the text is not valid.

    name: the name of the file, for messages
    """
    try:
        text = data.decode("utf-8-sig")
        return list(_documents(text, name))
    except UnicodeDecodeError:
        raise Failure(Exit.CONFIG, f"{name}: expected YAML in UTF-8") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Failure(Exit.CONFIG, f"{name}: not valid YAML: {_reason(error)}") from None


def dump(value: Json) -> str:
    """Return an object as the text of one YAML document."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text


def _documents(text: str, name: str) -> Iterator[Document]:
    values = list(yaml.load_all(text, _Loader))
    for number, (value, original) in enumerate(zip(values, _texts(text), strict=True), 1):
        if value is None:
            continue
        if not isinstance(value, dict):
            raise Failure(Exit.CONFIG, f"{name}: document {number}: {value!r:.60}: expected a Kubernetes object")
        if value.get("kind") not in _LISTS:
            yield Document(number, value, original)
            continue
        items = value.get("items") or []
        if not isinstance(items, list):
            raise Failure(Exit.CONFIG, f"{name}: document {number}: items: {items!r:.60}: expected a list")
        for item in items:
            if not isinstance(item, dict):
                raise Failure(Exit.CONFIG, f"{name}: document {number}: {item!r:.60}: expected a Kubernetes object")
            yield Document(number, item, None)


def _texts(text: str) -> Iterator[str]:
    """Yield the text of each document, without separators."""
    begin = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.DocumentStartEvent):
            mark = event.end_mark if event.explicit else event.start_mark
            begin = mark.index if mark else 0
        elif isinstance(event, yaml.DocumentEndEvent):
            end = event.start_mark.index if event.start_mark else len(text)
            yield text[begin:end].strip("\n") + "\n"


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "nested too deeply"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
