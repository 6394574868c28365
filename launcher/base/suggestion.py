"""Suggestions for a misspelt word."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from launcher.errors import Exit, Failure

_ALIKE = 0.7  # of 1


def nearest(word: str, known: Collection[str]) -> str | None:
    """Return the word that is most like this one, or the only one that begins with it; else None."""
    by_small = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_small, n=1, cutoff=_ALIKE)
    near = near or [each for each in by_small if each.startswith(word.lower())]
    return by_small[near[0]] if len(near) == 1 else None


def meant(word: str, known: Collection[str]) -> str:
    """Return a question about the nearest of these words, or an empty text."""
    near = nearest(word, known)
    return f": is {near} meant?" if near else ""


def no_such(what: str, word: str, known: Collection[str], see: str, beginning: str = "") -> Failure:
    """Return the failure for a command or flag that does not exist. `beginning`: what all names begin with."""
    near = nearest(word.removeprefix(beginning), [name.removeprefix(beginning) for name in known])
    advice = f"; see {see}" if near is None else f": is {beginning}{near} meant? See {see}"
    return Failure(Exit.USAGE, f"{what}{advice}")
