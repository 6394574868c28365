"""Where each file of the repository is in the site, and the links between pages, rewritten for that.

A page links to files as on a code host: relative to itself. Pages of docs/ have the same place in the site. Other
files get a place as soon as a page links to them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = "docs/"
SOURCES = "source/"  # in the site: files that are no pages, and folders
PLACES = {
    "README.md": "index.md",
    "README.zh.md": "zh/index.md",
    "k8s/README.md": "manifests.md",
    "examples/quick_start/README.md": "quick-start.md",
    "SECURITY.md": "project/reporting.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
}
_LINK = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$"  # code has no links
    r"|^(?: {4}|\t)[^\n]*$"
    r"|(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<inline>\]\(\s*<?)(?P<a>[^)\s>]+)"
    r"|(?P<named>^\[[^\]\n]+\]:[ \t]+<?)(?P<b>[^\s>]+)"
    r"|(?P<html>\b(?:href|src|srcset)=\")(?P<c>[^\"\s]+)",
    re.DOTALL | re.MULTILINE,
)


def place(path: str) -> str:
    """Return the source of this file or folder in the site: `reference/x.md` for a page, else the file itself."""
    if path in PLACES:
        return PLACES[path]
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return SOURCES + path if path.endswith(".md") else f"{SOURCES}{path}.md"


def linked(path: str, text: str) -> Iterator[str]:
    """Yield the files and folders to which a page links: paths from the repository's root. Skip what does not exist."""
    for match in _LINK.finditer(text):
        target = _file(path, _target(match).partition("#")[0])
        if target:
            yield target


def rewrite(path: str, text: str, url: Callable[[str], str]) -> str:
    """Return the text of a page for the site. Leave links that lead to no file, so that mkdocs reports them.

    path: of the page, from the repository's root
    url: returns for a source in the site the address that raw HTML of this page must have
    """
    own = place(path)

    def changed(match: re.Match[str]) -> str:
        link, hash_sign, anchor = _target(match).partition("#")
        target = _file(path, link)
        if target is None:
            return match[0]
        new = url(place(target)) if match["html"] else posixpath.relpath(place(target), posixpath.dirname(own) or ".")
        before = match["inline"] or match["named"] or match["html"]
        return f"{before}{new}{hash_sign}{anchor}"

    return _LINK.sub(changed, text)


def source_page(path: str) -> str:
    """Return a page that shows a file, or all files of a folder."""
    whole = REPOSITORY / path
    files = sorted(each for each in whole.iterdir() if each.is_file()) if whole.is_dir() else [whole]
    parts = ["---\nsearch: {exclude: true}\n---", f"# {path}"]
    for file in files:
        if whole.is_dir():
            parts.append(f"## {file.name}")
        parts.append(f"```` {_language(file)}\n{file.read_text(encoding='utf-8').rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


def style() -> str:
    """Return the style sheet of the site."""
    return (REPOSITORY / "website" / "site.css").read_text(encoding="utf-8")


def _language(file: Path) -> str:
    known = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh", ".toml": "toml"}
    return "dockerfile" if "Dockerfile" in file.name else known.get(file.suffix, "text")


def _target(match: re.Match[str]) -> str:
    return match["a"] or match["b"] or match["c"] or ""


def _file(page: str, link: str) -> str | None:
    """Return the path of a linked file or folder, from the repository's root, or None if there is no such file."""
    if not link or re.match("[a-z]+:|/", link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if path.startswith("..") or path == "." or not os.path.exists(REPOSITORY / path):
        return None
    folder_page = posixpath.join(path, "README.md")
    return folder_page if os.path.exists(REPOSITORY / folder_page) else path
