"""Make docs/commands.md from the help of all commands: `python -m tests.support.commands_page > docs/commands.md`."""

from __future__ import annotations

from launcher.cli import parser
from launcher.cli.commands import COMMANDS

_HEAD = """\
# Commands

What `paddle-launcher --help` and `paddle-launcher COMMAND --help` print. Tab completion for bash, zsh and fish:
[completion](#completion). [Watch a job](watch.md) shows `status --watch` and `list`,
[See where a job hangs](why.md) shows `why`, [Check a job before it trains](doctor.md) shows `doctor`.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD, _shown(parser.overview())]
    for command in COMMANDS:
        parts += [f"## {command.name}\n", _shown(parser.help_of(command))]
    return "\n".join(parts)


def _shown(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    print(page(), end="")
