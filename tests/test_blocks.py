"""Each block of commands of the pages is run by a test, or the page says why not."""

from __future__ import annotations

import re

import pytest

from tests.support.page_tests import TESTS, WHOLE_PAGES, pages, run_by, runners_of
from tests.support.pages import blocks, blocks_of
from tests.support.paths import REPOSITORY

CHINESE = sorted(str(page.relative_to(REPOSITORY)) for page in REPOSITORY.glob("docs/zh/*.md"))
CHINESE += [name for name in ("README.zh.md",) if (REPOSITORY / name).exists()]


def english(page: str) -> str:
    return page.replace("docs/zh/", "docs/").replace(".zh.md", ".md")


@pytest.mark.parametrize("page", pages())
def test_each_block_is_run_by_one_test_or_says_why_not(page: str) -> None:
    for block in blocks_of(page):
        tests = runners_of(block)
        if block.unrun and page not in WHOLE_PAGES:
            assert not tests, f"{block.place}: {tests} runs this block, which says that no test does"
        elif not block.unrun:
            assert len(tests) == 1, (
                f"{block.place}: expected one test in tests/support/page_tests.py, or `<!-- not run by a test: REASON "
                f"-->` in the line above the block; found {tests or 'neither'}:\n{block.commands}"
            )


@pytest.mark.parametrize("page", CHINESE)
def test_a_chinese_page_has_the_commands_that_its_english_page_has(page: str) -> None:
    there = [(block.commands, bool(block.unrun)) for block in blocks_of(english(page))]
    assert [(block.commands, bool(block.unrun)) for block in blocks_of(page)] == there


@pytest.mark.parametrize(("page", "words", "test"), TESTS)
def test_each_test_of_the_list_runs_its_blocks(page: str, words: str, test: str) -> None:
    path, _, name = test.partition("::")
    source = (REPOSITORY / path).read_text()
    if not name:
        assert words.strip() in source
        return
    body = re.search(rf"^def {name}\(.*?(?=^def |^@|\Z)", source, re.MULTILINE | re.DOTALL)
    assert body, f"{test} does not exist"
    assert f'run_by("{name}")' in body[0], f"{test} must run the blocks that run_by returns"
    assert any(block.page == page for block in run_by(name)), f"no block of {page} matches {words!r}"


@pytest.mark.parametrize(("page", "test"), WHOLE_PAGES.items())
def test_the_test_of_a_whole_page_exists(page: str, test: str) -> None:
    assert blocks_of(page)
    assert (REPOSITORY / test).exists()


def test_a_block_has_a_fence_with_a_known_language_and_its_own_output() -> None:
    fence = "```"
    parts = ["# A", f"{fence}sh\nls\n{fence}", f"{fence}text\na\n{fence}", f"{fence}sh\nrm a\n{fence}", "B"]
    page = "\n\n".join([*parts, f"{fence}text\nb\n{fence}\n"])
    assert [(block.heading, block.commands, block.shown) for block in blocks(page)] == [
        ("A", "ls\n", "a\n"),
        ("A", "rm a\n", ""),
    ]
    for wrong in (f"{fence}\nls\n{fence}\n", "text\n\n    ls\n", f"{fence}bash\nls\n{fence}\n", f"{fence}sh\nls\n"):
        with pytest.raises(AssertionError):
            blocks(wrong)
