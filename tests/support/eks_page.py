"""docs/eks.md as a reader follows it, with stand-ins for commands that a test cannot run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import Block, blocks
from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "eks.md"
BLOCK_SECONDS = 100


def page_blocks() -> list[Block]:
    return blocks(PAGE.read_text())


@dataclass(frozen=True)
class Printed:
    """What a block has printed."""

    output: str
    errors: str


class Follower:
    """Runs blocks of the page, in a folder with a clone of this repository.

    Each block runs in a new shell, after the variables of the first block: the page promises that a reader can continue
    in a new terminal.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        """`environment` is all that commands get besides PATH, in which stand-ins come first."""
        self.folder = folder / "reader"
        self.calls = folder / "calls"
        self._tools = folder / "tools"
        for made in (self.folder, self.calls, self._tools):
            made.mkdir()
        (self.folder / "paddle-launcher").symlink_to(REPOSITORY)
        path = environment.pop("PATH", os.environ["PATH"])
        given = {"PATH": f"{self._tools}{os.pathsep}{path}", "HOME": str(folder), "CALLS": str(self.calls)}
        self._environment = given | environment
        first = page_blocks()[0].commands
        self._choices = "".join(line for line in first.splitlines(True) if line.startswith("export "))

    def stand_in(self, command: str, script: str) -> None:
        """Put a shell script in the place of a command. Its calls are written to a file of this name below `calls`."""
        (self._tools / command).write_text(f'#!/bin/sh\necho "$@" >> "$CALLS/{command}"\n{script}')
        (self._tools / command).chmod(0o755)

    def calls_of(self, command: str) -> list[str]:
        path = self.calls / command
        return path.read_text().splitlines() if path.exists() else []

    def follow(self, block: Block) -> Printed:
        done = self.run(block.commands)
        told = f"{block.commands}\n--- it printed\n{done.stdout}\n--- and on standard error\n{done.stderr}"
        assert done.returncode == 0, f"{PAGE.name}, line {block.line}: exit code {done.returncode}\n{told}"
        return Printed(done.stdout, done.stderr)

    def run(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._choices + commands],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS,
        )
