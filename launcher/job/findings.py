"""Read a user's mapping field by field. Collect all fields that are wrong, or that are ignored or changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from launcher.base.suggestion import meant


@dataclass(frozen=True)
class Finding:
    """A remark on one field: its path, and a reason that says what to do."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass
class Findings:
    """The findings of one job: a job with `problems` cannot be used, `notes` say what is ignored or changed."""

    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def add_problem(self, path: str, reason: str) -> None:
        """Add a problem, unless the same problem was added before."""
        if (problem := Finding(path, reason)) not in self.problems:
            self.problems.append(problem)

    def add_note(self, path: str, reason: str) -> None:
        self.notes.append(Finding(path, reason))


class Fields:
    """The fields of a mapping. `path`: where the mapping is in the user's file.

    A null field counts as absent. A field of the wrong type counts as absent, too, and is added to the findings.
    """

    def __init__(self, values: dict[str, Any], path: str, findings: Findings) -> None:
        self.values = values
        self.findings = findings
        self._path = path

    def path(self, name: str) -> str:
        """Return the full path of a field."""
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str) -> str | None:
        value: str | None = self._typed(name, str, "text, in quotes")
        return value

    def integer(self, name: str) -> int | None:
        value: int | None = self._typed(name, int, "a whole number")
        if isinstance(value, bool):
            self._add_wrong_type(name, "a whole number")
            return None
        return value

    def mapping(self, name: str) -> Fields | None:
        value = self._typed(name, dict, "a mapping")
        return None if value is None else Fields(value, self.path(name), self.findings)

    def texts(self, name: str) -> list[str]:
        """Return a list of strings. The list is empty if the field is absent or if one of its items is no string."""
        items = self._typed(name, list, "a list") or []
        for index, item in enumerate(items):
            if not isinstance(item, str):
                self.findings.add_problem(f"{self.path(name)}[{index}]", f"{item!r}: expected text, in quotes")
                return []
        return list(items)

    def mappings(self, name: str) -> Iterator[Fields]:
        """Yield the items of a list of mappings."""
        for index, item in enumerate(self._typed(name, list, "a list") or []):
            path = f"{self.path(name)}[{index}]"
            if isinstance(item, dict):
                yield Fields(item, path, self.findings)
            else:
                self.findings.add_problem(path, f"{item!r}: expected a mapping")

    def unknown(self, known: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield each field that is not in `known`, with a suggestion that may be empty."""
        for name in self.values:
            if name not in known:
                yield name, meant(str(name), known)

    def _typed(self, name: str, kind: type, expected: str) -> Any:
        value = self.values.get(name)
        if value is None or isinstance(value, kind):
            return value
        self._add_wrong_type(name, expected)
        return None

    def _add_wrong_type(self, name: str, expected: str) -> None:
        self.findings.add_problem(self.path(name), f"{self.values[name]!r}: expected {expected}")
