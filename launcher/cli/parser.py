"""The argparse parser of each command, and the help that is made from the parser."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from launcher import __version__
from launcher.base.suggestion import no_such
from launcher.cli.commands import COMMANDS, GROUPS, PROGRAM, Command
from launcher.errors import Exit, Failure

_WIDTH = 79
_SPACE = "\0"  # stands for a space at which a line must not be broken
_ABOUT = "N Kubernetes pods become one PaddlePaddle training job"
_MORE = f"`{PROGRAM} COMMAND --help` explains a command, its flags and exit codes."


def named(name: str) -> Command:
    """Return the command of this name, or raise Failure with a suggestion."""
    for command in COMMANDS:
        if command.name == name:
            return command
    if name.startswith("-"):
        raise Failure(Exit.USAGE, f"{name}: expected a command before any flag; see {PROGRAM} --help")
    names = [command.name for command in COMMANDS]
    raise no_such(f"{name}: no such command", name, names, f"{PROGRAM} --help")


def parse(command: Command, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments. Flags may stand before, between and after the other words.

    Raises Failure if an argument is wrong.
    """
    parser = _parser(command)
    try:
        given, unknown = parser.parse_known_intermixed_args(arguments)
    except Failure:
        parser.refuse_unknown_flags(arguments)
        raise
    parser.refuse_unknown_flags(unknown)
    if unknown:
        raise Failure(Exit.USAGE, f"{command.name}: {unknown[0]}: unexpected argument; see {parser.prog} --help")
    return given


def overview() -> str:
    """Return the help of the program: one line per command."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"{PROGRAM} {__version__}: {_ABOUT}"]
    for group in GROUPS:
        lines.append(f"{group}:")
        lines += [f"  {each.name:<{width}}  {each.summary}" for each in COMMANDS if each.group == group]
    return "\n".join([*lines, _MORE])


def help_of(command: Command) -> str:
    """Return the help of one command."""
    return _parser(command).format_help().rstrip("\n")


def tree() -> argparse.ArgumentParser:
    """Return one parser with a subparser for each command. Tab completion needs it."""
    root = _Parser(prog=PROGRAM, description=_ABOUT)
    root.add_argument("--version", action="version", version=__version__, help="print the version")
    below = root.add_subparsers()
    for command in COMMANDS:
        parser = below.add_parser(
            command.name, help=command.summary, **{**_texts(command), "description": command.summary}
        )
        command.add(parser)
        command.add_hidden(parser)
    return root


class _Parser(argparse.ArgumentParser):
    """Raises Failure in the cases where argparse would print its usage and exit with 2."""

    def __init__(self, **texts: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, add_help=False, **texts)
        self._positionals.title, self._optionals.title = "arguments", "flags"
        self.add_argument("-h", "--help", action="help", help="print this help")

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ").replace("expected one argument", "expected a value")
        text = text.replace("the following arguments are required:", "expected")
        raise Failure(Exit.USAGE, f"{self.prog.removeprefix(PROGRAM).strip()}: {text}; see {self.prog} --help")

    def refuse_unknown_flags(self, words: Sequence[str]) -> None:
        """Raise Failure for the first of these words that is an unknown flag."""
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        for word in words:
            flag = word.partition("=")[0]
            if word == "--":
                return
            if word.startswith("-") and word != "-" and flag not in self._option_string_actions:
                name = self.prog.removeprefix(PROGRAM).strip()
                raise no_such(f"{name}: {flag}: no such flag", flag, known, f"{self.prog} --help", "--")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Formats help in the same way at any width of the terminal and with any version of Python."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=_WIDTH)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


def _parser(command: Command) -> _Parser:
    parser = _Parser(**_texts(command))
    command.add(parser)
    return parser


def _texts(command: Command) -> dict[str, Any]:
    codes = [_filled(text, f"  {code:<7}") for code, text in command.exits]
    examples = [f"  {example}" for example in command.examples]
    return {
        "prog": f"{PROGRAM} {command.name}",
        "usage": command.usage,
        "description": "\n\n".join(map(_filled, command.description)),
        "epilog": "\n".join(["exit codes:", *codes, "", "examples:", *examples]),
    }


def _filled(text: str, before: str = "") -> str:
    """Return the text, broken into lines. No line is broken within a command between backticks."""
    whole = re.sub("`[^`]*`", lambda found: found[0].replace(" ", _SPACE), text)
    after = " " * len(before)
    lines = textwrap.wrap(whole, _WIDTH, initial_indent=before, subsequent_indent=after, break_on_hyphens=False)
    return "\n".join(lines).replace(_SPACE, " ")
