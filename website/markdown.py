"""Texts of the program as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def text(words: str) -> str:
    """Return words that look the same in Markdown. What stands between backticks is code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return _plain(words)
    return "".join(code(part) if number % 2 else _plain(part) for number, part in enumerate(parts))


def code(words: object) -> str:
    return f"`{words}`" if "`" not in str(words) else f"`` {words} ``"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(words: str) -> str:
    escaped = re.sub(r"([\\`*\[\]])|(?<!\w)_|_(?!\w)", r"\\\g<0>", words)
    return escaped.replace("&", "&amp;").replace("<", "&lt;")
