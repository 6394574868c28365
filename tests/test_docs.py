"""The pages: every link leads to a file, and to a heading of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"^(```.*?^```|    .*?)$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, text=True, capture_output=True, check=True)
    return [REPOSITORY / name for name in listed.stdout.split()]


def anchors(page: Path) -> set[str]:
    """Return the anchors that the headings of a page have on the web."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text())):
        if "://" in target:
            continue
        place = (page.parent / target).resolve() if target else page
        if not place.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(place):
            yield f"{target}#{anchor}: no such heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    assert list(broken(page)) == []
