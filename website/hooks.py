"""What mkdocs calls while it builds the site. mkdocs.yml names this file."""

from __future__ import annotations

import itertools
import logging
import re
from pathlib import Path
from typing import Any, ClassVar

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation, Section
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from launcher.config import schema
from website import api, commands, links, paths, tables, variables

CHINESE = "zh/"
HOMES = ("index.md", "zh/index.md")
CHINESE_NAMES = {  # names in the navigation of mkdocs.yml, and the Chinese ones
    "Home": "首页",
    "Start": "入门",
    "Train": "训练",
    "Watch": "观察作业",
    "Solve problems": "排查问题",
    "Reference": "参考",
    "Project": "项目",
}
_HTML_WITH_MARKDOWN = re.compile(r"^<(details|div)\b([^>]*)>(?=\n)", re.MULTILINE)
_GENERATED = {
    commands.PLACE: commands.page,
    variables.PLACE: variables.page,
    variables.SCHEMA: schema.text,
    api.PLACE: api.page,
    "site.css": paths.style,
}
_log = logging.getLogger("mkdocs.website")


class _Site:
    """What an event needs from an earlier one."""

    files: ClassVar[Files]
    nav: ClassVar[Navigation]
    chinese_nav: ClassVar[Navigation]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out of the navigation what is not there. A misspelt page is still an error: the right one has no place."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    for section in config.nav or ():
        for name, entries in section.items():
            if isinstance(entries, list):
                section[name] = [entry for entry in entries if _exists(entry)]
    return config


def _exists(entry: str | dict[str, str]) -> bool:
    source = entry if isinstance(entry, str) else next(iter(entry.values()))
    return source in (*paths.PLACES.values(), *_GENERATED) or (paths.REPOSITORY / paths.DOCS / source).exists()


def anchor(heading: str, separator: str) -> str:
    """Return the anchor that a code host makes from a heading, in any language."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs/: the README and other pages, all files to which pages link, and generated pages."""
    waiting = [f"{paths.DOCS}{file.src_uri}" for file in files.documentation_pages()]
    waiting += [path for path in paths.PLACES if (paths.REPOSITORY / path).exists()]
    if plain := files.get_file_from_path(commands.PLACE):  # docs/commands.md shows the same as plain text
        files.remove(plain)
    for source, content in _GENERATED.items():
        files.append(File.generated(config, source, content=content()))
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        source, whole = paths.place(path), paths.REPOSITORY / path
        if not files.get_file_from_path(source):
            if path.endswith(".md"):
                files.append(File.generated(config, source, abs_src_path=str(whole)))
            else:
                files.append(File.generated(config, source, content=paths.source_page(path)))
        if path.endswith(".md"):
            new = set(paths.linked(path, whole.read_text(encoding="utf-8"))) - seen
            waiting += sorted(new)
            seen |= new
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri in HOMES:
        page.meta["hide"] = ["navigation"]  # the tabs have it
    markdown = tables.with_plain_pipes(markdown)
    if page.file.abs_src_path is None:
        return markdown  # generated
    path = Path(page.file.abs_src_path).relative_to(paths.REPOSITORY).as_posix()

    def url(source: str) -> str:
        file = files.get_file_from_path(source)
        return get_relative_url(file.url, page.file.url) if file else source

    return _HTML_WITH_MARKDOWN.sub(r'<\1\2 markdown="1">', paths.rewrite(path, markdown, url))


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    _Site.files, _Site.nav = files, nav
    return nav


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Make the navigation of the Chinese pages. It is that of the English pages, to which it links where it must."""
    pages: list[Page] = []

    def chinese(item: Any, parent: Section | None) -> Any:
        if isinstance(item, Section):
            if item.title not in CHINESE_NAMES:
                _log.warning(
                    f"website/hooks.py: CHINESE_NAMES has no name for the section '{item.title}' of mkdocs.yml"
                )
            made: Any = Section(CHINESE_NAMES.get(item.title, item.title), [])
            made.children = [chinese(child, made) for child in item.children]
        elif page := _other(item):
            made = page
            made.title = CHINESE_NAMES.get(item.title, made.title)  # a page named in mkdocs.yml, such as the home page
            pages.append(page)
        else:
            made = Link(f"{item.title} (English)", item.url)
        made.parent = parent
        return made

    items = [chinese(item, None) for item in _Site.nav.items]
    for before, after in itertools.pairwise(pages):
        before.next_page, after.previous_page = after, before
    _Site.chinese_nav = Navigation(items, pages)
    _Site.chinese_nav.homepage = pages[0] if pages else None
    return env


def _other(page: Page) -> Page | None:
    """Return the same page in the other language, or None."""
    source = page.file.src_uri
    other = source.removeprefix(CHINESE) if source.startswith(CHINESE) else CHINESE + source
    file = _Site.files.get_file_from_path(other)
    return file.page if file else None


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation) -> dict[str, Any]:
    """Set the language of a page, its navigation, and its link to the other language."""
    is_chinese = page.file.src_uri.startswith(CHINESE)
    own_nav, other_nav = (_Site.chinese_nav, nav) if is_chinese else (nav, _Site.chinese_nav)
    config.theme["language"] = "zh" if is_chinese else "en"
    other = _other(page) or other_nav.homepage
    alternates = [(is_chinese, page), (not is_chinese, other)]
    config.extra["alternate"] = [
        {"name": "中文" if in_chinese else "English", "lang": "zh" if in_chinese else "en", "link": one.url or "."}
        for in_chinese, one in sorted(alternates, key=lambda pair: pair[0])
        if one
    ]
    context["nav"] = own_nav
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Remove what tells search engines of other languages: it would need the site's address, and the theme asks for a
    site map beside each of these pages."""
    return re.sub(r'\s*<link rel="alternate" [^>]*hreflang=[^>]*>', "", output)


def on_post_build(config: MkDocsConfig) -> None:
    """Report links that lead nowhere. With --strict, the build then fails."""
    for problem in links.broken(Path(config.site_dir)):
        _log.warning(problem)
