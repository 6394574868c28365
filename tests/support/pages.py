"""The pages with commands: their blocks, and how their output is compared with what is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.paths import REPOSITORY

_FENCE = re.compile(r"^(?:<!-- not run by a test: (.+) -->\n)?```(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_INDENTED = re.compile(r"(?:^|\n\n)    \S")
LANGUAGES = {"sh", "text", "yaml", "python"}


@dataclass(frozen=True)
class Block:
    """Commands of a page, and their output as shown there, or "" if the page shows no output.

    heading: the heading above the block
    unrun: why no test runs the commands, as the page says. "" if a test must run them
    """

    page: str
    heading: str
    line: int
    commands: str
    shown: str
    unrun: str

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"


def blocks(text: str, page: str = "") -> list[Block]:
    """Return the blocks of commands of a page, in order.

    Each block of a page has a fence with its language. `sh` contains commands, and `text` right after it their output.
    """
    fences = list(_FENCE.finditer(text))
    assert text.count("```") == 2 * len(fences), f"{page}: a block without an end"
    assert text.count("<!--") == sum(bool(fence[1]) for fence in fences), f"{page}: a comment that belongs to no block"
    assert {fence[2] for fence in fences} <= LANGUAGES, f"{page}: expected one of {LANGUAGES} after ```"
    assert not _INDENTED.search(_FENCE.sub("", text)), f"{page}: a block without a fence"
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(_FENCE.sub(_blank, text))]
    found = []
    for fence, after in zip(fences, [*fences[1:], None][: len(fences)], strict=True):
        if fence[2] == "sh":
            shows_output = after and after[2] == "text" and not text[fence.end() : after.start()].strip()
            above = [heading for start, heading in headings if start < fence.start()]
            line = text.count("\n", 0, fence.start(2)) + 1
            shown = after[3] if after and shows_output else ""
            found.append(Block(page, above[-1] if above else "", line, fence[3], shown, fence[1] or ""))
    return found


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of commands of a page of this repository, such as docs/eks.md."""
    return blocks((REPOSITORY / page).read_text(), page)


def _blank(fence: re.Match[str]) -> str:
    """Return a text of the same length without headings."""
    return " " * len(fence[0])


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
