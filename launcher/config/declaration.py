"""How a field of the configuration is declared together with its variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Variable:
    """One environment variable. `expected` describes the valid texts. For other texts `parse` raises ValueError."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    expected: str
    meaning: str

    @property
    def shown_default(self) -> str | None:
        """The default as the text that the variable would have, or None if no text stands for it."""
        if self.default is None:
            return None
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return f"{self.default:g}" if isinstance(self.default, (bool, float)) else str(self.default)


def variable(name: str, parse: Callable[[str], Any], default: Any, expected: str, meaning: str) -> Any:
    """Declare a field of the configuration with its variable."""
    return field(metadata={"variable": Variable(name, parse, default, expected, meaning)})


def declared(section: type[Any]) -> Iterator[tuple[str, Variable]]:
    """Yield the name and the variable of each field of a section. Skip fields that have no variable."""
    for each in fields(section):
        if "variable" in each.metadata:
            yield each.name, each.metadata["variable"]
