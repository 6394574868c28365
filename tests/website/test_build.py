"""What ends `make docs` with an error. `make test-docs` says with DOCS_PYTHON where mkdocs is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

PARTS = ["docs", "examples", "k8s", "launcher", "tests", "website", "README.md", "SECURITY.md", "CHANGELOG.md"]
PARTS += ["CONTRIBUTING.md", "mkdocs.yml"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the files from which the site is built."""
    for part in PARTS:
        whole = REPOSITORY / part
        if whole.is_dir():
            shutil.copytree(whole, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(whole, tmp_path)
    if (REPOSITORY / "README.zh.md").exists():
        shutil.copy(REPOSITORY / "README.zh.md", tmp_path)
    return tmp_path


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    python = os.environ.get("DOCS_PYTHON")
    if not python:
        pytest.fail("DOCS_PYTHON must name the Python of .venv-docs: `make test-docs` does", False)
    command = ["unshare", "--net", "--map-root-user", python, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=100
    )


def test_the_site_is_built_without_a_network(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stderr
    assert (copy / "site" / "index.html").exists()


def test_a_new_chinese_page_is_in_the_navigation_of_its_language(copy: Path) -> None:
    (copy / "docs" / "zh" / "e2e.md").write_text("# 端到端测试结果\n\n[English](../e2e.md)\n")
    assert build(copy).returncode == 0
    built = copy / "site"
    assert "端到端测试结果" in (built / "zh" / "faults" / "index.html").read_text()
    assert "端到端测试结果" not in (built / "faults" / "index.html").read_text()
    assert 'href="../zh/e2e/" hreflang="zh"' in (built / "e2e" / "index.html").read_text()


def test_each_broken_link_and_each_page_without_a_place_is_named(copy: Path) -> None:
    with (copy / "docs" / "why.md").open("a") as page:
        page.write("\n[a](no-such.md)\n[b](watch.md#no-such-heading)\n[c](../k8s/no-such.yaml)\n")
    with (copy / "README.md").open("a") as page:
        page.write('\n<img src="docs/images/no-such.svg" alt="none">\n')
    (copy / "docs" / "forgotten.md").write_text("# Forgotten\n")
    navigation = (copy / "mkdocs.yml").read_text()
    (copy / "mkdocs.yml").write_text(
        navigation.replace("- Train:\n", "- Learn:\n").replace("- resume.md", "- resum.md")
    )
    done = build(copy)
    assert done.returncode != 0
    assert "- forgotten.md" in done.stderr
    assert "- resume.md" in done.stderr
    assert "no name for the section 'Learn'" in done.stderr
    assert "contains a link 'no-such.md'" in done.stderr
    assert "contains a link 'watch.md#no-such-heading'" in done.stderr
    assert "contains a link '../k8s/no-such.yaml'" in done.stderr
    assert "docs/images/no-such.svg: no such page" in done.stderr
