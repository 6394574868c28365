"""The page with all commands, made from their parsers. On a code host, docs/commands.md shows the same as text."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser

from launcher import config
from launcher.cli import parser
from launcher.cli.commands import COMMANDS, GROUPS, PROGRAM, Command
from website import variables
from website.markdown import code, table, text

PLACE = "commands.md"
_PAGE = re.compile(r"docs/([\w-]+)\.md")
_HEAD = f"""\
# Commands

`{PROGRAM} COMMAND --help` prints the help of a command. [`completion`](#completion) is for tab completion.
[Watch a job](watch.md) shows `status --watch` and `list`. [See where a job hangs](why.md) shows `why`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n\n".join([_HEAD, *map(_overview, GROUPS), *map(_section, COMMANDS)]) + "\n"


def _overview(group: str) -> str:
    rows = [(f"[`{each.name}`](#{each.name})", text(each.summary)) for each in COMMANDS if each.group == group]
    return f"**{group}**\n\n{table(('command', 'what it does'), rows)}"


def _section(command: Command) -> str:
    made = ArgumentParser(add_help=False)
    command.add(made)
    usage = parser.help_of(command).partition("\n\n")[0].removeprefix("usage: ")
    exits = [(code(exit_code), _linked(meaning)) for exit_code, meaning in command.exits]
    parts = [f"## {command.name}", *map(_linked, command.description), _block(re.sub("^ +", "", usage, flags=re.M))]
    if rows := [_row(command, action) for action in made._actions]:
        parts += ["**Arguments and flags**", table(("name", "meaning"), rows)]
    parts += ["**Exit codes**", table(("code", "meaning"), exits), "**Examples**", _block("\n".join(command.examples))]
    return "\n\n".join(parts)


def _row(command: Command, action: Action) -> tuple[str, str]:
    """Return a flag or an argument, with an anchor such as `status--watch`, and its meaning."""
    names = action.option_strings or [str(action.metavar)]
    value = f" {action.metavar}" if action.option_strings and action.nargs != 0 else ""
    target = f'<span id="{command.name}{names[-1] if action.option_strings else "-" + names[0].lower()}"></span>'
    shown = ", ".join(code(name + value) for name in names)
    known = config.variable_of_flag(names[-1]) if action.option_strings else None
    meaning = _linked((action.help or "").replace("%%", "%"))
    if known:
        meaning = f"[`{known}`]({variables.PLACE}#{known.lower()}): {meaning}"
    return target + shown, meaning


def _linked(words: str) -> str:
    """Return a text of the command line as Markdown, with links to the pages that it names."""
    return _PAGE.sub(r"[\1](\1.md)", text(words))


def _block(lines: str) -> str:
    return f"```sh\n{lines}\n```"
