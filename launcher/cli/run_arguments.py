"""The arguments of `run`, `plan` and `local`: flags of the launcher among flags of Paddle, then a command after --.

argparse cannot be used here: flags of Paddle must stay as they are, in their order. So `run` does not load argparse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from launcher import config
from launcher.base.suggestion import no_such
from launcher.errors import Exit, Failure

_OWN = "--launcher-"
_HELP = ("-h", "--help")


@dataclass(frozen=True)
class Request:
    """The parsed arguments of `run`, `plan` or `local`."""

    own: Mapping[str, str]  # variable to value
    flags: tuple[str, ...]  # for `paddle train`, unchanged
    command: tuple[str, ...]  # after --
    options: Mapping[str, str] = field(default_factory=dict)  # of `plan` and `local`: flag to value, "" for a switch


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether the command's help is wanted. After -- every word belongs to the user's command."""
    return any(word in _HELP for word in _split(arguments)[0])


def parse(arguments: Sequence[str], *, switches: Collection[str] = (), valued: Collection[str] = ()) -> Request:
    """Separate the launcher's flags from all other words. Raises Failure for an unknown flag or a missing value."""
    words, command = _split(arguments)
    if command == []:
        raise Failure(Exit.USAGE, "--: expected a command after it")
    own: dict[str, str] = {}
    options: dict[str, str] = {}
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word in switches:
            options[word] = ""
        elif not flag.startswith(_OWN) and flag not in valued:
            flags.append(word)
        else:
            target, name = (options, flag) if flag in valued else (own, _variable(flag))
            target[name] = value if equals else _next(flag, rest)
    if command and flags:
        raise Failure(
            Exit.USAGE, f"{' '.join(flags)}: flags for `paddle train` cannot be used together with a command after --"
        )
    return Request(own, tuple(flags), tuple(command or ()), options)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Return the flags, and the command after --. Without --, the command is None."""
    if "--" not in arguments:
        return arguments, None
    cut = list(arguments).index("--")
    return arguments[:cut], list(arguments[cut + 1 :])


def _variable(flag: str) -> str:
    variable = config.variable_of_flag(flag)
    if variable is None:
        raise no_such(f"{flag}: no such flag", flag, config.flags(), "paddle-launcher run --help", _OWN)
    return variable


def _next(flag: str, rest: Iterator[str]) -> str:
    found = next(rest, None)
    if found is None:
        raise Failure(Exit.USAGE, f"{flag}: expected a value")
    return found
