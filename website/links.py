"""Check all links of the built pages, as a browser follows them: those in HTML, too, of which mkdocs knows nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ADDRESSES = ("href", "src", "srcset", "data-src", "poster")


class _Page(HTMLParser):
    """The anchors of a page, and its links: line, address, and whether a reader must click it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {"", "top"}
        self.links: list[tuple[int, str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attributes if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        line, clicked = self.getpos()[0], tag in ("a", "area")
        self.links += [(line, given[name], clicked) for name in _ADDRESSES if name in given]


@cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def broken(site: Path) -> Iterator[str]:
    """Yield one line per link that leads to no file or no anchor of the site, or that asks another host for a part."""
    _read.cache_clear()
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue  # has absolute links, since it is shown at any address
        for line, link, clicked in _read(page).links:
            if problem := _problem(site, page, link, clicked):
                yield f"{page.relative_to(site)}:{line}: {link}: {problem}"


def _problem(site: Path, page: Path, link: str, clicked: bool) -> str:
    address = urlsplit(link)
    if address.scheme == "data" or (clicked and (address.scheme or address.netloc)):
        return ""
    if address.scheme or address.netloc:
        return "a part of another host"
    if address.path.startswith("/"):
        return "an absolute address: the site may be below any path"
    target = page.parent / unquote(address.path) if address.path else page
    target = Path(posixpath.normpath(target))
    if not target.is_relative_to(site):
        return "outside of the site"
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such page"
    if address.fragment and target.suffix == ".html" and unquote(address.fragment) not in _read(target).anchors:
        return "no such heading"
    return ""
