"""docs/security.md names the test of each promise: every one exists."""

from __future__ import annotations

import re

from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "security.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    places = [REPOSITORY / name for name in set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))]
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    defined = {name for path in places if path.exists() for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named - defined == set()


def test_every_promise_has_a_test() -> None:
    rows = re.findall(r"^\| (?!promise|field|---)(.+) \|$", PAGE, re.MULTILINE)
    assert rows
    assert [row for row in rows if not re.search("`(tests/|make fuzz)", row)] == []
