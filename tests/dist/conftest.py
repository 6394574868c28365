"""Packages that `make dist` builds from copies of this folder.

`make test-dist` makes the environment that DIST_TOOLS names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

Tree = Callable[[str, int], Path]


@pytest.fixture(scope="session")
def tools() -> Path:
    """Return the folder of build, twine, uv, pipx, zizmor and actionlint."""
    given = os.environ.get("DIST_TOOLS")
    if not given:
        pytest.fail("DIST_TOOLS must name the folder of `uvx`, `pipx` and `zizmor`: `make test-dist` makes one", False)
    return Path(given)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return a function that copies the files of this repository into a new folder. All files get this time stamp."""

    def copied(name: str, changed: int) -> Path:
        folder = tmp_path_factory.mktemp(name)
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=REPOSITORY, text=True, capture_output=True, check=True).stdout
        for each in filter(None, listed.split("\0")):
            if (REPOSITORY / each).exists():
                (folder / each).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / each, folder / each)
                os.utime(folder / each, (changed, changed))
        return folder

    return copied


@pytest.fixture(scope="session")
def build(tools: Path, tree: Tree) -> Callable[[str, int, int], Path]:
    """Return a function that runs `make dist` in a new copy, and returns its `dist` folder."""

    def built(name: str, changed: int, umask: int) -> Path:
        folder = tree(name, changed)
        if umask & 0o077:
            subprocess.run(["chmod", "-R", "go-rwx", folder], check=True)
        venv = str(tools.parent).removesuffix("-dist")
        done = subprocess.run(
            ["make", "dist", f"VENV={venv}"], cwd=folder, umask=umask, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return folder / "dist"

    return built


@pytest.fixture(scope="session")
def dist(build: Callable[[str, int, int], Path]) -> Path:
    return build("first", 1_000_000_000, 0o022)


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose home folder and caches are empty."""
    names = ("HOME", "PIPX_HOME", "UV_CACHE_DIR", "UV_TOOL_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    folders = {name: str(tmp_path / "user" / name) for name in names}
    for folder in folders.values():
        Path(folder).mkdir(parents=True)
    python = {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never", "PIPX_DEFAULT_PYTHON": sys.executable}
    network = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http", "HTTP"))}
    return {"PATH": "/usr/bin:/bin"} | folders | python | network
