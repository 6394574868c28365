"""Reading what people wrote: each value by its field's path, with all that is wrong and all that is to be said."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from launcher.base.suggestion import meant


@dataclass(frozen=True)
class Note:
    """What is not as it was asked for: the field's path, and why, with what to do instead."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass
class Found:
    """What reading has come upon so far: problems, which forbid any use, and notes."""

    problems: list[Note] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def problem(self, path: str, reason: str) -> None:
        """Something is wrong there."""
        if (note := Note(path, reason)) not in self.problems:
            self.problems.append(note)

    def note(self, path: str, reason: str) -> None:
        """Something there cannot be honoured."""
        self.notes.append(Note(path, reason))


class Fields:
    """A mapping of fields at a path. What is null counts as absent; what has a wrong type is a problem, and absent."""

    def __init__(self, values: dict[str, Any], path: str, found: Found) -> None:
        self.values = values
        self.found = found
        self._path = path

    def path(self, name: str) -> str:
        """The path of one of these fields."""
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return self.values.get(name) is not None

    def text(self, name: str) -> str | None:
        """A field of text."""
        value: str | None = self._typed(name, str, "text, in quotes")
        return value

    def whole(self, name: str) -> int | None:
        """A whole number."""
        value = self._typed(name, int, "a whole number")
        if isinstance(value, bool):
            self._wrong(name, "a whole number")
            return None
        found: int | None = value
        return found

    def mapping(self, name: str) -> Fields | None:
        """Fields below this one."""
        value = self._typed(name, dict, "a mapping")
        return None if value is None else Fields(value, self.path(name), self.found)

    def texts(self, name: str) -> list[str]:
        """A list of text, as a command is."""
        value = self._typed(name, list, "a list") or []
        if all(isinstance(word, str) for word in value):
            return list(value)
        place = next(place for place, word in enumerate(value) if not isinstance(word, str))
        self.found.problem(f"{self.path(name)}[{place}]", f"{value[place]!r}: expected text, in quotes")
        return []

    def each(self, name: str) -> Iterator[Fields]:
        """A list of mappings."""
        for place, value in enumerate(self._typed(name, list, "a list") or []):
            path = f"{self.path(name)}[{place}]"
            if isinstance(value, dict):
                yield Fields(value, path, self.found)
            else:
                self.found.problem(path, f"{value!r}: expected a mapping")

    def strangers(self, known: Collection[str]) -> Iterator[tuple[str, str]]:
        """Fields that are there and not known, each with a guess at what is meant, which may be empty."""
        for name in self.values:
            if name not in known:
                yield name, meant(str(name), known)

    def _typed(self, name: str, kind: type, expected: str) -> Any:
        value = self.values.get(name)
        if value is None or isinstance(value, kind):
            return value
        self._wrong(name, expected)
        return None

    def _wrong(self, name: str, expected: str) -> None:
        self.found.problem(self.path(name), f"{self.values[name]!r}: expected {expected}")
