"""A reader of a page: runs its blocks as they are written, in one folder and one environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support.pages import Block, shows

BLOCK_SECONDS = 400

# build -f FILE ... FOLDER | push IMAGE | info
DOCKER = """\
case "$*" in
"build -f - "* | *" -f - "*) cat > "$CALLS/dockerfile" ;;
"build -f "*) [ -f "$3" ] ;;
esac
"""


class Reader:
    """Runs blocks in `folder`. Variables and PATH that a block sets hold for the next blocks.

    A stand-in is a script in the place of a command. Its calls are written to a file of its name below `calls`.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder / "reader"
        self.calls = folder / "calls"
        self.tools = folder / "tools"
        for made in (self.folder, self.calls, self.tools):
            made.mkdir()
        self._environment = folder / "environment"
        self._environment.touch()
        path = environment.pop("PATH", os.environ["PATH"])
        self._given = os.environ | environment | {"PATH": f"{self.tools}{os.pathsep}{path}", "CALLS": str(self.calls)}

    def stand_in(self, command: str, script: str) -> None:
        (self.tools / command).write_text(f'#!/bin/sh\necho "$@" >> "$CALLS/{command}"\n{script}')
        (self.tools / command).chmod(0o755)

    def calls_of(self, command: str) -> list[str]:
        path = self.calls / command
        return path.read_text().splitlines() if path.exists() else []

    def follow(self, block: Block) -> str:
        """Run the commands, compare their output with the page, and return it."""
        done = self.bash(block.commands)
        told = f"{block.commands}\n--- it printed\n{done.stdout}\n--- and on standard error\n{done.stderr}"
        assert done.returncode == 0, f"{block.place}: exit code {done.returncode}\n{told}"
        if block.shown:
            assert shows(block.shown, done.stdout), f"{block.place}: the page shows\n{block.shown}\n--- of\n{told}"
        return done.stdout

    def follow_all(self, blocks: Iterable[Block]) -> list[str]:
        return [self.follow(block) for block in blocks]

    def bash(self, commands: str) -> subprocess.CompletedProcess[str]:
        keep = f"source '{self._environment}'\n{commands}\nexport -p > '{self._environment}'"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", keep],
            cwd=self.folder,
            env=self._given,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS,
        )
