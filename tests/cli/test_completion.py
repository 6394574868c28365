"""Tab completion in the shells themselves: each runs in a terminal, reads its script, and gets a line with a TAB."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cli.commands import COMMANDS
from launcher.config import flags

# Without the user's own files. A function in the place of the program shows the line that the shell has made.
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "bind 'set show-all-if-ambiguous on'; bind 'set page-completions off'; "
        "source <(paddle-launcher completion bash); paddle-launcher() { printf '<%s>' \"$@\"; echo; }; PS1='rea''dy> '",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -U compinit; compinit -u -D; setopt no_auto_remove_slash; source <(paddle-launcher completion zsh); "
        "paddle-launcher() { printf '<%s>' \"$@\"; echo; }; PS1='rea''dy> '",
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        "paddle-launcher completion fish | source; function paddle-launcher; printf '<%s>' $argv; echo; end; "
        "function fish_prompt; echo 'rea''dy> '; end",
    ),
}
PROMPT = "ready> "
COMPLETED = [
    ("st", "atus"),
    ("run --launcher-peer-t", "imeout"),
    ("run --config=a --launcher-peer-t", "imeout"),
    ("local --nodes 3 --launcher-sil", "ence"),
    ("plan --disc", "over"),
    ("status --names", "pace"),
    ("status --wa", "tch"),
    ("list --all-n", "amespaces"),
    ("list -o j", "son"),
    ("logs --role ps", "erver"),
    ("completion f", "ish"),
    ("submit --watch jo", "b.yaml"),
    ("shard --data da", "taset/"),
    ("run -- jo", "b.yaml"),
]
SHOWN = [
    ("", [command.name for command in COMMANDS], "Split a data set"),
    ("status -", ["--json", "--namespace"], "print JSON"),
    ("run --launcher-peer", ["--launcher-peers", "--launcher-peer-timeout"], "how long to wait for peers"),
    ("plan --launcher-", flags(), "how long to wait for peers"),
]
WITHIN = 40.0
SIZE = (100, 160)  # lines, columns: `run` has more than fifty flags, one per line


class Terminal:
    """A shell in a terminal, and its output."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self.name = argv[0]
        self.shown = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
            os.chdir(folder)
            path = f"{folder / 'bin'}:{os.environ['PATH']}"
            os.execvpe(argv[0], argv, {"PATH": path, "HOME": str(folder), "TERM": "xterm"})

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, *words: str) -> str:
        """Return the output, as soon as it contains all of these words."""
        deadline = time.monotonic() + WITHIN
        while not all(word in self.shown for word in words):
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"not within {WITHIN:g} s: {words}: {self.shown}"
            self.shown += _plain(os.read(self._fd, 65536).decode(errors="replace"))
        return self.shown

    def enter(self, words: str) -> None:
        """End the line, wait until the shell has read these words, and until it accepts the next line."""
        self.type("\n")
        made = "".join(f"<{word}>" for word in words.split()) or "<>"
        self.wait_for(made)
        self.shown = self.shown.partition(made)[2]
        self.wait_for(PROMPT)
        self.shown = ""

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._fd)


def _plain(text: str) -> str:
    return re.sub(r"\x1b(\[[0-9;?>=]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])", "", text)


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """A shell that has read the completion, in a folder with a file and a folder."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed here")
    program = tmp_path / "bin" / "paddle-launcher"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m launcher "$@"\n')
    program.chmod(0o755)
    (tmp_path / "job.yaml").touch()
    (tmp_path / "dataset").mkdir()
    argv, prepare = SHELLS[request.param]
    shell = Terminal(argv, tmp_path)
    shell.type(f"{prepare}\n")
    shell.wait_for(PROMPT)
    shell.shown = ""
    yield shell
    shell.close()


def test_tab_completes_a_word_that_has_only_one_completion(terminal: Terminal) -> None:
    for typed, rest in COMPLETED:
        terminal.type(f"paddle-launcher {typed}\t")
        terminal.wait_for(rest)
        terminal.enter(typed + rest)


def test_tab_lists_all_completions(terminal: Terminal) -> None:
    for typed, choices, meaning in SHOWN:
        terminal.type(f"paddle-launcher {typed}\t")
        ends = [choice[-9:] for choice in choices]  # fish leaves out most of what all begin with
        terminal.wait_for(*ends, *([] if terminal.name == "bash" else [meaning]))
        terminal.enter(typed)
