"""The result of `doctor`: one check per question, as aligned lines or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from launcher.base.file_errors import printable

OK, WARNING, WRONG, UNKNOWN = "ok", "warning", "WRONG", "unknown"

_STATES = (WRONG, WARNING, UNKNOWN, OK)
_LEAST_WIDTH = 40  # of the text beside names and states; a narrower terminal wraps the lines itself
_BEFORE_COMMAND = "  "


@dataclass(frozen=True)
class Check:
    """The answer to one question.

    what: what was found, or what is wrong
    mend: what the user does about it: commands, which may be followed by alternatives
    """

    name: str
    state: str
    what: str
    mend: tuple[str, ...] = ()


def is_good(checks: Sequence[Check]) -> bool:
    """Return whether nothing is wrong. Warnings and open questions do not count."""
    return all(check.state != WRONG for check in checks)


def as_text(title: str, checks: Sequence[Check], width: int | None) -> str:
    """Return one line per check. `width`: of the terminal, where long texts get more lines; commands stay whole."""
    names = max((len(check.name) for check in checks), default=0)
    states = max((len(check.state) for check in checks), default=0)
    lines = [printable(title), ""]
    for check in checks:
        head = f"{check.name:<{names}}  {check.state:<{states}}  "
        lines += _wrapped(head, printable(check.what), width)
        lines += [_BEFORE_COMMAND + printable(command) for command in check.mend]
    return "\n".join([*lines, "", summary(checks)])


def as_json(title: str, checks: Sequence[Check]) -> str:
    items = [asdict(check) | {"state": check.state.lower()} for check in checks]
    return json.dumps({"job": title, "good": is_good(checks), "checks": items}, indent=1)


def summary(checks: Sequence[Check]) -> str:
    """Return how many checks have which state, such as `1 wrong, 14 ok`."""
    counts = Counter(check.state for check in checks)
    return ", ".join(f"{counts[state]} {state.lower()}" for state in _STATES if counts[state]) or "nothing to check"


def _wrapped(head: str, text: str, width: int | None) -> list[str]:
    if width is None or width - len(head) < _LEAST_WIDTH:
        return [head + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    ) or [head]
