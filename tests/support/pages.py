"""The pages of docs/ with commands: their blocks, and how their output is compared with what is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^(?:<!-- not run by a test: (.+) -->\n)?```(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands of a page, and their output as shown there, or "" if the page shows no output.

    If the page says why no test runs them, `unrun` has this reason. Otherwise it is "".
    """

    line: int
    commands: str
    shown: str
    unrun: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks in order: `sh` contains commands, `text` after it their output. No others exist."""
    fences = list(_FENCE.finditer(page))
    assert page.count("```") == 2 * len(fences), "a block without an end"
    assert page.count("<!--") == sum(bool(fence[1]) for fence in fences), "a comment that belongs to no block"
    assert {fence[2] for fence in fences} == {"sh", "text"}
    found = []
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        shown = after[3] if after and after[2] == "text" else ""
        if fence[2] == "sh":
            found.append(Block(page.count("\n", 0, fence.start(2)) + 1, fence[3], shown, fence[1] or ""))
    return found


def same_for_all(text: str) -> str:
    """Return the text without parts that differ between runs: widths of columns, names of a Job's pods, times."""
    text = re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-POD", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    return "".join(" ".join(line.split()) + "\n" for line in text.splitlines())


def shows(shown: str, printed: str) -> bool:
    """Return whether this was printed. `...` stands for any text in a line, and alone in a line for any lines."""
    lines = []
    for line in same_for_all(shown).splitlines():
        words = ".*".join(map(re.escape, line.split("...")))
        lines.append(r"(?:.*\n)*?" if line == "..." else words + r"\n")
    return re.fullmatch("".join(lines), same_for_all(printed)) is not None
