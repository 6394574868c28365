"""The arguments of `run`, `plan` and `local`: flags of the launcher among flags of Paddle, then a command after --.

argparse is no help here: flags that are not the launcher's stay as they are, in their order. Nor does `run` load it.
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
    """What `run` was asked for on its command line."""

    own: Mapping[str, str]  # variable to value
    flags: tuple[str, ...]  # for `paddle train`, as they are
    command: tuple[str, ...]  # after --
    options: Mapping[str, str] = field(default_factory=dict)  # of `plan` and `local`: flag to value, "" for a switch


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether the command's help is wanted. After -- every word belongs to the user's command."""
    return any(word in _HELP for word in _split(arguments)[0])


def parse(arguments: Sequence[str], *, switches: Collection[str] = (), valued: Collection[str] = ()) -> Request:
    """Separate the launcher's flags from all others. Raises Failure for one that is unknown or has no value."""
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
            Exit.USAGE, f"{' '.join(flags)}: flags for `paddle train` do not go with a command of your own after --"
        )
    return Request(own, tuple(flags), tuple(command or ()), options)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Return the flags, and the command after --, which is None without --."""
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
