"""The check of the built pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from website import links


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("b/", ""),
        ("b/#there", ""),
        ("b/#%E4%BD%9C%E4%B8%9A", ""),
        ("#", ""),
        ("https://example.org/", ""),
        ("mailto:a@example.org", ""),
        ("c/", "no such page"),
        ("b/#elsewhere", "no such heading"),
        ("#elsewhere", "no such heading"),
        ("/b/", "an absolute address: the site may be below any path"),
        ("../b/", "outside of the site"),
    ],
)
def test_each_broken_link_is_named_with_its_page_and_line(tmp_path: Path, link: str, problem: str) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<h2 id="there">There</h2><h2 id="作业">Job</h2>')
    (tmp_path / "index.html").write_text(f'<p>\n<a href="{link}">this</a>')
    assert list(links.broken(tmp_path)) == ([f"index.html:2: {link}: {problem}"] if problem else [])


@pytest.mark.parametrize("part", ['<img src="{}">', '<script src="{}"></script>', '<link rel="stylesheet" href="{}">'])
def test_a_part_of_another_host_is_named(tmp_path: Path, part: str) -> None:
    (tmp_path / "index.html").write_text(part.format("https://example.org/a"))
    assert list(links.broken(tmp_path)) == ["index.html:1: https://example.org/a: a part of another host"]
