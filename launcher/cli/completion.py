"""Tab completion for a shell. shtab makes the script from the parser of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

_FOLDERS = ("DATA", "CONFIG", "OUT", "FOLDER|JOB")
_FILES = {"FILE": shtab.FILE, "FILE|JOB": shtab.FILE, "COMMAND": shtab.FILE, **dict.fromkeys(_FOLDERS, shtab.DIRECTORY)}
_ZSH = (
    ("$zsh_eval_context[-1] == eval", "$zsh_eval_context[-1] == (eval|file)"),  # also for `source <(...)`
    ('"(-)*::', '"*:'),  # flags of the launcher may follow a flag of Paddle
)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that the shell must load. It completes file names for values whose metavar is a file."""
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar in _FILES:
            vars(action)["complete"] = _FILES[action.metavar]
    text = shtab.complete(parser, shell)
    for made, wanted in _ZSH if shell == "zsh" else ():
        text = text.replace(made, wanted)
    return text


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from _actions(below)
