"""Suggestions for a misspelt word."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from launcher.errors import Exit, Failure

_ALIKE = 0.7  # from 0 to 1: two words that are at least so similar count as similar


def nearest(word: str, known: Collection[str]) -> str | None:
    """Return the known word that is most similar to `word`.

    If no known word is similar, return the only known word that begins with `word`. If there is not exactly one such
    word, return None.
    """
    by_small = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_small, n=1, cutoff=_ALIKE)
    near = near or [each for each in by_small if each.startswith(word.lower())]
    return by_small[near[0]] if len(near) == 1 else None


def meant(word: str, known: Collection[str]) -> str:
    """Return a question that names the known word from `nearest`, or "" if there is none."""
    near = nearest(word, known)
    return f": did you mean {near}?" if near else ""


def no_such(what: str, word: str, known: Collection[str], see: str, beginning: str = "") -> Failure:
    """Return the failure for a command or flag that does not exist.

    see: where the user finds all names
    beginning: the characters with which all names begin; they are left out of the comparison
    """
    near = nearest(word.removeprefix(beginning), [name.removeprefix(beginning) for name in known])
    advice = f"; see {see}" if near is None else f": did you mean {beginning}{near}? See {see}"
    return Failure(Exit.USAGE, f"{what}{advice}")
