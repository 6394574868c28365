"""Tables as mkdocs reads them."""

from __future__ import annotations

import re

_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def with_plain_pipes(markdown: str) -> str:
    """Return the page with `|` for each `\\|` in code spans of tables.

    A code host needs the backslash there. The tables of mkdocs do not, and would show it.
    """
    lines, fence = markdown.splitlines(keepends=True), ""
    for number, line in enumerate(lines):
        text = line.strip()
        if fence:
            fence = "" if text == fence else fence
        elif opened := re.match(r"(`{3,}|~{3,})", text):
            fence = opened[1]
        elif text.startswith("|"):
            lines[number] = _CODE.sub(lambda span: span[0].replace("\\|", "|"), line)
    return "".join(lines)
