"""Each way of docs/install.md to install the command, in a folder and an environment that have nothing of the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from launcher import __version__
from tests.dist.conftest import Tree
from tests.support.paths import PADDLEJOBS

PADDLEJOB = PADDLEJOBS / "wide-and-deep.yaml"


class Installed:
    """The command as a user starts it, in a folder of the user, with nothing of the tests in its environment."""

    def __init__(self, start: Sequence[str | Path], folder: Path, **environment: str) -> None:
        self._start = start
        self._folder = folder
        self._environment = {"PATH": "/usr/bin:/bin", **environment}
        self._environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}

    def prints(self, *arguments: str) -> str:
        command = [*self._start, *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, text=True, capture_output=True, timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def works(command: Installed) -> None:
    """Check help, plan and render of an installed command."""
    assert f"paddle-launcher {__version__}: " in command.prints("--help")
    assert re.search("^trainer +paddle train .*--config=a.py", command.prints("plan", "--config=a.py"), re.MULTILINE)
    rendered = command.prints("render", "--entrypoint", "python3 train.py", str(PADDLEJOB))
    assert {each["kind"] for each in yaml.safe_load_all(rendered)} >= {"Job", "Service"}


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def caches(tmp_path: Path) -> dict[str, str]:
    """Return variables with which uv and pipx start with empty caches, in a folder of the test."""
    names = ("HOME", "PIPX_HOME", "UV_CACHE_DIR", "UV_TOOL_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    folders = {name: str(tmp_path / "user" / name) for name in names}
    for folder in folders.values():
        Path(folder).mkdir(parents=True)
    return folders | {
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_DEFAULT_PYTHON": sys.executable,
    }


@pytest.mark.timeout(300)
def test_pip_installs_the_wheel(dist: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (wheel,) = dist.glob("*.whl")
    subprocess.run([tmp_path / "venv" / "bin" / "pip", "install", "-q", wheel], cwd=folder, check=True)
    works(Installed([tmp_path / "venv" / "bin" / "paddle-launcher"], folder))


@pytest.mark.timeout(300)
def test_pip_installs_the_source_distribution(dist: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (sdist,) = dist.glob("*.tar.gz")
    subprocess.run([tmp_path / "venv" / "bin" / "pip", "install", "-q", sdist], cwd=folder, check=True)
    works(Installed([tmp_path / "venv" / "bin" / "paddle-launcher"], folder))


@pytest.mark.timeout(300)
def test_uvx_runs_it_from_the_sources_and_writes_nothing_there(tools: Path, tree: Tree, caches: dict[str, str]) -> None:
    folder = tree("uvx", 1_600_000_000)
    before = files(folder)
    works(Installed([tools / "uvx", "--from", ".", "paddle-launcher"], folder, **caches))
    assert files(folder) == before


@pytest.mark.timeout(300)
def test_pipx_runs_it_from_the_sources_and_writes_nothing_there(
    tools: Path, tree: Tree, caches: dict[str, str]
) -> None:
    folder = tree("pipx", 1_600_000_000)
    before = files(folder)
    works(Installed([tools / "pipx", "run", "--spec", ".", "paddle-launcher"], folder, **caches))
    assert files(folder) == before
