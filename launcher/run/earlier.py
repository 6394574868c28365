"""Why the earlier generations of the job have ended, for the last lines of the log and for the termination message."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINE_LIMIT, _LIMIT = 300, 1200  # bytes: of one line, of all lines


class EarlierCauses:
    """The first cause of each generation that has ended, as far as this member knows it."""

    def __init__(self) -> None:
        self._causes: dict[int, str] = {}

    def add(self, causes: Mapping[int, str]) -> None:
        """Add causes by the number of their generation. A cause that is known stays as it is."""
        self._causes = {**causes, **self._causes}

    def lines(self, latest: int | None, end: str) -> list[str]:
        """Return one line per generation, with at most 1200 bytes in all. Generations with the same cause share a line.

        A line does not repeat a cause that `end` has.

        latest: the latest generation, which is left out if `end` has its cause
        end: the text that says how this member ends
        """
        numbers = sorted(self._causes)
        end = " ".join(end.split())
        if numbers and numbers[-1] == latest and _has(end, self._causes[latest]):
            numbers.pop()
        groups: list[list[int]] = []
        for number in numbers:
            if groups and self._causes[groups[-1][0]] == self._causes[number] and groups[-1][-1] + 1 == number:
                groups[-1].append(number)
            else:
                groups.append([number])
        causes = [self._causes[group[0]] for group in groups]
        named = ["the same cause" if _has(end, cause) else cause for cause in causes]
        lines = [f"earlier: {_generations(group)}: {cause}" for group, cause in zip(groups, named, strict=True)]
        return _shortened([*map(_cut, lines)])


def _has(end: str, cause: str) -> bool:
    """Return whether a text has this cause, not one that only begins like it: exit code 1 is not exit code 13."""
    return re.search(re.escape(cause) + r"(?!\w)", end) is not None


def _generations(numbers: list[int]) -> str:
    return f"generation {numbers[0]}" if len(numbers) == 1 else f"generations {numbers[0]} to {numbers[-1]}"


def _cut(line: str) -> str:
    data = line.encode(errors="backslashreplace")
    return data.decode() if len(data) <= _LINE_LIMIT else f"{data[: _LINE_LIMIT - 3].decode(errors='ignore')}..."


def _shortened(lines: list[str]) -> list[str]:
    """Return the first line and the newest lines that fit. A line between them says how many are left out."""
    if sum(len(line.encode()) + 1 for line in lines) <= _LIMIT:
        return lines
    left_out = "earlier: {} more causes are in job.json (generations)"
    kept: list[str] = []
    free = _LIMIT - len(lines[0].encode()) - len(left_out) - 10
    for line in reversed(lines[1:]):
        free -= len(line.encode()) + 1
        if free < 0:
            break
        kept.insert(0, line)
    return [lines[0], left_out.format(len(lines) - 1 - len(kept)), *kept]
