"""The Chinese pages: each has the code, the tables and the facts of its English page, in the same order."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.pages import blocks
from tests.support.paths import REPOSITORY

README = REPOSITORY / "README.zh.md"
PAGES = [README, *sorted((REPOSITORY / "docs" / "zh").glob("*.md"))]
_BLOCK = re.compile(r"^```(?:.*\n)+?```$|^(?: {4}.*\n)+", re.MULTILINE)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_HEADING = re.compile(r"^(#+) .*$", re.MULTILINE)
_ROWS = re.compile(r"^(?:\|.*\n)+", re.MULTILINE)
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_FACT = re.compile(rf"`[^`]+`|{_NUMBER.pattern}")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def original(page: Path) -> Path:
    """Return the English page of a Chinese page."""
    return REPOSITORY / "README.md" if page == README else REPOSITORY / "docs" / page.name


def english(page: Path) -> str:
    return original(page).read_text()


def link(page: Path, other: Path) -> str:
    """Return the target of a link from one page to another."""
    return os.path.relpath(other, page.parent)


def without_code(text: str) -> str:
    return _BLOCK.sub("", text)


def is_translated(block: str, original_block: str) -> bool:
    """Return whether a drawing or a formula has the same lines and numbers as the English one, with Chinese words."""
    (numbers, lines), theirs = ((_NUMBER.findall(each), each.count("\n")) for each in (block, original_block))
    return block.startswith("```text\n") and bool(_CHINESE.search(block)) and (numbers, lines) == theirs


def levels(text: str) -> list[str]:
    """Return `#`, `##` or `###` for each heading."""
    return _HEADING.findall(without_code(text))


def tables(text: str) -> list[list[list[str]]]:
    """Return the cells of each row of each table."""
    return [[row.split("|")[1:-1] for row in table.splitlines()] for table in _ROWS.findall(without_code(text))]


def columns(text: str) -> list[list[int]]:
    """Return for each table how many columns each row has."""
    return [[len(row) for row in table] for table in tables(text)]


def cells(text: str) -> list[str]:
    return [cell for table in tables(text) for row in table for cell in row]


def sections(text: str) -> list[str]:
    """Return the sentences of each section, without its tables and code blocks."""
    return _HEADING.sub("\f", _ROWS.sub("", without_code(text))).split("\f")


def facts(text: str) -> Counter[str]:
    """Count what is the same in each language: the code spans and the numbers."""
    return Counter(re.sub(r"\s+", " ", fact) for fact in _FACT.findall(_LINK_TARGET.sub("]", text)))


def missing(originals: list[str], translations: list[str]) -> list[tuple[str, str]]:
    """Return each original whose translation does not have all of its facts, after these facts."""
    pairs = zip(originals, translations, strict=True)
    return [(", ".join(lost), text) for text, other in pairs if (lost := facts(text) - facts(other))]


def test_there_are_chinese_pages() -> None:
    assert {page.name for page in PAGES} > {"README.zh.md", "eks.md", "kubernetes.md"}


@each_page
def test_a_chinese_page_has_the_code_blocks_of_its_english_page(page: Path) -> None:
    here, there = _BLOCK.findall(page.read_text()), _BLOCK.findall(english(page))
    assert len(here) == len(there)
    for block, original_block in zip(here, there, strict=True):
        assert block == original_block or is_translated(block, original_block)
    assert [block.shown for block in blocks(page.read_text())] == [block.shown for block in blocks(english(page))]


@each_page
def test_a_chinese_page_has_a_heading_for_each_english_heading(page: Path) -> None:
    assert levels(page.read_text()) == levels(english(page))


@each_page
def test_a_chinese_table_has_as_many_rows_and_columns_as_the_english_table(page: Path) -> None:
    assert columns(page.read_text()) == columns(english(page))


@each_page
def test_a_chinese_cell_has_the_names_and_numbers_of_the_english_cell(page: Path) -> None:
    assert missing(cells(english(page)), cells(page.read_text())) == []


@each_page
def test_a_chinese_section_has_the_names_and_numbers_of_the_english_section(page: Path) -> None:
    assert missing(sections(english(page)), sections(page.read_text())) == []


@each_page
def test_a_chinese_page_and_its_english_page_link_to_each_other_below_the_title(page: Path) -> None:
    assert page.read_text().splitlines()[1:4] == ["", f"[English]({link(page, original(page))})", ""]
    assert english(page).splitlines()[1:4] == ["", f"[中文]({link(original(page), page)})", ""]


@each_page
def test_a_chinese_page_links_to_other_chinese_pages_where_there_are_any(page: Path) -> None:
    text = page.read_text().replace(f"[English]({link(page, original(page))})", "")
    linked = {(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:\s]+\.md)", text)}
    assert linked & {original(other) for other in PAGES} == set()


def test_the_chinese_picture_is_the_english_picture_with_other_words() -> None:
    words = re.compile(r"(?<=>)[^<>{}]+(?=</(?:text|title|desc)>)")
    pictures = [(REPOSITORY / "docs" / "images" / f"how-it-works{kind}.svg").read_text() for kind in ("", ".zh")]
    assert words.split(pictures[0]) == words.split(pictures[1])
    assert "how-it-works.zh.svg" in README.read_text()
