"""Each way to install the command, in a folder and an environment that have nothing of the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from launcher import __version__
from tests.dist.conftest import Tree
from tests.support.pages import blocks, shows
from tests.support.paths import PADDLEJOBS, REPOSITORY

PADDLEJOB = PADDLEJOBS / "wide-and-deep.yaml"
PAGE = REPOSITORY / "docs" / "install.md"

pytestmark = pytest.mark.timeout(300)


class Installed:
    """The command as a user starts it, in a folder of the user."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *start: str | Path) -> None:
        self._start = start
        self._folder = folder
        self._environment = environment

    def prints(self, *arguments: str) -> str:
        command = [*self._start, *arguments]
        done = subprocess.run(command, cwd=self._folder, env=self._environment, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def works(self) -> None:
        """Check help, plan and render."""
        assert f"paddle-launcher {__version__}: " in self.prints("--help")
        assert re.search("^trainer +paddle train .*--config=a.py", self.prints("plan", "--config=a.py"), re.MULTILINE)
        rendered = self.prints("render", "--entrypoint", "python3 train.py", str(PADDLEJOB))
        assert {each["kind"] for each in yaml.safe_load_all(rendered)} >= {"Job", "Service"}


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("package", ["*.whl", "*.tar.gz"], ids=["wheel", "source distribution"])
def test_pip_installs_each_package(dist: Path, user: dict[str, str], tmp_path: Path, package: str) -> None:
    folder, programs = tmp_path / "new", tmp_path / "venv" / "bin"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (path,) = dist.glob(package)
    subprocess.run([programs / "pip", "install", "--quiet", path], cwd=folder, env=user, check=True)
    Installed(folder, user, programs / "paddle-launcher").works()


@pytest.mark.parametrize("start", [("uvx", "--from"), ("pipx", "run", "--spec")], ids=lambda start: start[0])
def test_it_runs_from_the_sources_and_nothing_is_written_there(
    tools: Path, tree: Tree, user: dict[str, str], start: tuple[str, ...]
) -> None:
    folder = tree(start[0], 1_600_000_000)
    before = files(folder)
    Installed(folder, user, tools / start[0], *start[1:], ".", "paddle-launcher").works()
    assert files(folder) == before


def test_the_commands_of_the_page_run_as_written_and_print_what_is_shown(
    tools: Path, tree: Tree, user: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "paddle-launcher").symlink_to(tree("clone", 1_600_000_000))
    environment = user | {"VENV": str(tools.parent).removesuffix("-dist")}
    environment["PATH"] = f"{tools}:{environment['PATH']}"

    for block in blocks(PAGE.read_text()):
        if block.unrun:
            continue
        command = ["bash", "-euo", "pipefail", "-c", block.commands]
        done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
        assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
        assert not block.shown or shows(block.shown, done.stdout), f"line {block.line}: {done.stdout}"
        if "paddle-launcher version" in block.commands:
            assert done.stdout.endswith(f"{__version__}\n")
