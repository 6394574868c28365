"""The words of a command line: switches and values, taken out one after another until nothing unknown may be left."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.errors import Exit, Failure


def take(arguments: list[str], flag: str) -> bool:
    """Whether a switch of a command was given before --; it is taken out."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if flag not in arguments[:end]:
        return False
    arguments.remove(flag)
    return True


def take_value(arguments: list[str], flag: str) -> str | None:
    """The value of a command's flag, in either spelling, taken out of what was given before --."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for place, word in enumerate(arguments[:end]):
        if word.startswith(f"{flag}="):
            return arguments.pop(place).partition("=")[2]
        if word == flag and place + 1 < end:
            arguments.pop(place)
            return arguments.pop(place)
        if word == flag:
            raise Failure(Exit.USAGE, f"{flag}: expected a value")
    return None


def namespace(arguments: list[str]) -> str | None:
    """As kubectl takes it."""
    return take_value(arguments, "--namespace") or take_value(arguments, "-n")


def no_flags(command: str, arguments: Sequence[str], but: str | None = None) -> None:
    """What is left when all flags of a command are taken are no flags."""
    for word in arguments:
        if word.startswith("-") and word != but:
            raise Failure(Exit.USAGE, f"{command}: {word}: no such flag; see paddle-launcher --help")
