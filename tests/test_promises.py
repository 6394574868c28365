"""docs/security.md and docs/compatibility.md name the test of each promise: every one exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

_TITLES = ("promise", "field", "---")

each_page = pytest.mark.parametrize("page", ["security.md", "compatibility.md"])


def text(page: str) -> str:
    return (REPOSITORY / "docs" / page).read_text()


def rows(page: str) -> list[str]:
    return re.findall(rf"^\| (?!{'|'.join(_TITLES)})(.+) \|$", text(page), re.MULTILINE)


def defined(path: Path) -> set[str]:
    return set(re.findall(r"def (test_\w+)", path.read_text())) if path.exists() else set()


@each_page
def test_every_test_that_the_page_names_exists(page: str) -> None:
    places = [REPOSITORY / name for name in set(re.findall(r"`(tests/[\w/]+\.py)`", text(page)))]
    named = set(re.findall(r"`(test_\w+)`", text(page)))
    assert named
    assert named - {name for place in places for name in defined(place)} == set()


@each_page
def test_every_promise_has_a_test(page: str) -> None:
    assert rows(page)
    assert [row for row in rows(page) if not re.search("`(tests/|make fuzz)", row)] == []


def test_every_promise_of_the_documents_is_here() -> None:
    """The five documents make 55 promises. A page with fewer rows has lost one."""
    assert len(rows("compatibility.md")) >= 55
