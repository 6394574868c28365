"""Check the nodes of a YAML document before values are made of them.

An alias repeats a value that may contain further aliases. So a few hundred bytes of YAML can stand for any amount of
data, or contain themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

_MOST_REPEATED = 500_000  # characters that the aliases of a file may add to its text
_DEEPEST = 100  # levels of mappings and lists: an object of Kubernetes has about 20
_LONGEST_NUMBER = 100  # digits: Python takes long for long numbers, and refuses more than 4300 digits
_OF_A_NODE = 10  # characters that a node adds to its text: indentation, separators

_HALF = re.compile("[\ud800-\udfff]")  # a surrogate, which has no encoding
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_PLAIN = (*_NUMBERS, f"{_TAG}bool", f"{_TAG}null")
_TAGS = {_MERGE, *_PLAIN, *(f"{_TAG}{name}" for name in ("str", "seq", "map"))}  # the types of JSON, and <<


@dataclass
class _Extent:
    """The characters and levels of a node if every alias in it is replaced by its value."""

    characters: int
    levels: int


@dataclass
class NodeCheck:
    """The check of all documents of one file. `loader`: resolves the tags of plain values.

    Raises yaml.YAMLError for a cycle, a duplicate key, too many levels, and aliases that stand for too much text.
    Raises it also for a value without a type of JSON, or not of the type of its tag, and a text without an encoding.
    Needs time in proportion to the file.
    """

    loader: yaml.SafeLoader
    _repeated: int = 0
    _own: int = 0  # characters of all nodes of the document, each counted once
    _extents: dict[int, _Extent | None] = field(default_factory=dict)  # None: the node contains the current node

    def check(self, document: yaml.Node) -> None:
        self._own, self._extents = 0, {}
        extent = self._extent(document)
        self._repeated += extent.characters - self._own
        if self._repeated > _MOST_REPEATED:
            raise _error(
                document,
                f"its aliases (*) stand for more than {_MOST_REPEATED} characters: write out what differs, and use "
                "fewer aliases",
            )

    def _extent(self, node: yaml.Node) -> _Extent:
        if id(node) in self._extents:
            extent = self._extents[id(node)]
            if extent is None:
                raise _error(node, "this value contains an alias (*) of itself")
            return extent
        self._extents[id(node)] = None
        self._check_tag(node)
        own = _OF_A_NODE
        below: list[_Extent] = []
        if isinstance(node, yaml.ScalarNode):
            own += len(node.value)
            if _HALF.search(node.value):
                raise _error(node, "a half of a character (\\uD800 to \\uDFFF): write the whole character")
        elif isinstance(node, yaml.CollectionNode):
            below = [self._extent(child) for child in _children(node)]
        extent = _Extent(
            own + sum(each.characters for each in below), 1 + max((each.levels for each in below), default=0)
        )
        if extent.levels > _DEEPEST:
            raise _error(node, f"nested too deeply: expected at most {_DEEPEST} levels")
        self._own += own
        self._extents[id(node)] = extent
        return extent

    def _check_tag(self, node: yaml.Node) -> None:
        tag = str(node.tag)
        if tag not in _TAGS:
            raise _error(node, f"{tag.replace(_TAG, '!!')}: expected a type that Kubernetes knows: remove this tag")
        if tag in _PLAIN and isinstance(node, yaml.ScalarNode):
            resolved: str = self.loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
            if resolved != tag:
                raise _error(node, f"{node.value!r:.60}: expected {tag.removeprefix(_TAG)}, since it has this tag")
            if tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
                raise _error(node, f"a number of {len(node.value)} digits: expected at most {_LONGEST_NUMBER}")


def _children(node: yaml.CollectionNode) -> list[yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return list(node.value)
    seen = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE):
        if key.value in seen:
            raise _error(key, f"{key.value}: duplicate key")
        seen.add(key.value)
    return [child for pair in node.value for child in pair]


def _error(node: yaml.Node, problem: str) -> Any:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
