"""The built site, as a browser shows it. `make test-docs` builds it first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt  # comes with rich

from launcher.cli.commands import COMMANDS
from launcher.config import VARIABLES, flags, schema
from tests.support.paths import REPOSITORY

PAGES = ["", "configuration/", "zh/configuration/", "commands/", "reference/variables/", "reference/python/"]
PAGES += ["manifests/", "e2e/", "zh/faults/", "source/k8s/volumes/efs/volume.yaml/"]
DOCS = REPOSITORY / "docs"
PAGES_OF_DOCS = sorted(path for path in DOCS.rglob("*.md") if path.name != "commands.md")
FIRST_RESULT = ".md-search-result__item"
Open = Callable[..., "Opened"]


class Opened:
    """A page in the browser, with all that it has asked for and complained about."""

    def __init__(self, browser: Any, address: str, page: str, width: int = 1280, scheme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address + page)
        self.page.wait_for_load_state("networkidle")

    def search(self, words: str) -> str:
        """Return the first result."""
        self.page.click("input.md-search__input")
        self.page.keyboard.insert_text(words)
        self.page.keyboard.press("End")  # the search waits for a key
        self.page.wait_for_selector(FIRST_RESULT)
        text: str = self.page.inner_text(f"{FIRST_RESULT} >> nth=0")
        return text.replace("\N{ZERO WIDTH SPACE}", "")  # between the words of a Chinese text

    def languages(self) -> dict[str, str]:
        """Return for each language of the menu the address to which it leads."""
        links = self.page.query_selector_all("a.md-select__link")
        return {link.get_attribute("hreflang"): link.evaluate("link => link.href") for link in links}


@pytest.fixture
def opened(browser: Any, address: str) -> Open:
    return lambda *arguments, **options: Opened(browser, address, *arguments, **options)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_page_asks_no_other_host_and_fits_the_screen(
    opened: Open, address: str, page: str, width: int, scheme: str
) -> None:
    shown = opened(page, width=width, scheme=scheme)
    assert [url for url in shown.requests if not url.startswith(address)] == []
    assert shown.complaints == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_wide_table_scrolls_by_itself_on_a_phone(opened: Open) -> None:
    shown = opened("configuration/", width=400)
    wider = "table => table.closest('.md-typeset__scrollwrap').scrollWidth - 400"
    tables = shown.page.query_selector_all("article table")
    assert max(table.evaluate(wider) for table in tables) > 100
    scroll = "around.scrollLeft = 100; return around.scrollLeft"
    assert (
        tables[0].evaluate(f"table => {{ const around = table.closest('.md-typeset__scrollwrap'); {scroll} }}") == 100
    )


@pytest.mark.parametrize(
    ("page", "words", "found"),
    [
        ("configuration/", "gang port", "LAUNCHER_GANG_PORT"),
        ("", "LAUNCHER_STALL_TIMEOUT", "LAUNCHER_STALL_TIMEOUT"),
        ("zh/faults/", "分片", "分片"),
        ("zh/faults/", "退出码", "退出码"),
    ],
)
def test_the_search_finds_words_of_both_languages(
    opened: Open, address: str, page: str, words: str, found: str
) -> None:
    shown = opened(page)
    assert found in shown.search(words)
    assert [url for url in shown.requests if not url.startswith(address)] == []


def test_the_language_menu_leads_to_the_same_page_where_there_is_one(opened: Open, address: str) -> None:
    both = {"en": f"{address}faults/", "zh": f"{address}zh/faults/"}
    assert opened("faults/").languages() == both
    assert opened("zh/faults/").languages() == both
    only_english = opened("figures/").languages()
    assert only_english["en"] == f"{address}figures/"
    assert only_english["zh"].startswith(f"{address}zh/")


def test_a_chinese_page_is_chinese_around_the_text_too(opened: Open) -> None:
    shown = opened("zh/exit-codes/")
    assert shown.page.get_attribute("html", "lang") == "zh"
    assert "排查问题" in shown.page.inner_text(".md-tabs")
    assert "搜索" in (shown.page.get_attribute("input.md-search__input", "placeholder") or "")
    assert "退出码" in shown.page.inner_text(".md-nav--primary")
    assert opened("exit-codes/").page.get_attribute("html", "lang") == "en"


def test_the_home_page_is_the_readme(opened: Open) -> None:
    headings = [line[3:] for line in (REPOSITORY / "README.md").read_text().splitlines() if line.startswith("## ")]
    shown = opened("").page.inner_text("article")
    assert headings
    assert [each for each in headings if each.replace("`", "") not in shown] == []


def test_every_variable_has_its_heading_and_the_schema_is_published(opened: Open, site: Path) -> None:
    shown = opened("reference/variables/").page
    for variable in VARIABLES:
        assert variable.expected in shown.inner_text(f"h3#{variable.name.lower()} ~ ul"), variable.name
    assert (site / "reference" / "variables.schema.json").read_text() == schema.text()


def test_every_command_and_flag_has_its_place(opened: Open) -> None:
    shown = opened("commands/").page
    for command in COMMANDS:
        about = command.description[0].replace("`", "").partition(". ")[0]
        assert shown.inner_text(f"h2#{command.name} ~ p").startswith(about)
    for flag in flags():
        assert flag in shown.inner_text(f"tr:has(#run{flag})")


def counts(shown: str) -> dict[str, int]:
    """Return how many of each block there are in HTML, and how many parts they have."""
    return {tag: len(re.findall(rf"<{tag}[ >]", shown)) for tag in ("ul", "ol", "li", "tr", "td", "pre", "h2", "h3")}


@pytest.mark.parametrize("source", PAGES_OF_DOCS, ids=lambda path: str(path.relative_to(DOCS)))
def test_a_page_has_the_lists_tables_and_code_blocks_that_a_code_host_shows(site: Path, source: Path) -> None:
    there = MarkdownIt("gfm-like", {"linkify": False}).render(source.read_text())
    article = (site / source.relative_to(DOCS).with_suffix("") / "index.html").read_text().partition("<article")[2]
    assert counts(article.partition("</article>")[0]) == counts(there)


def test_the_python_api_has_all_public_names(opened: Open) -> None:
    from launcher import job

    shown = opened("reference/python/").page
    for name in job.__all__:
        assert shown.query_selector(f"[id='launcher.job.{name}']"), name
    assert shown.query_selector("[id='launcher.train.log']")
    assert "How many times the job restarts" in shown.inner_text("article")
