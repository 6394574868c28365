"""The folder names of saved passes: `pass-00000`, `pass-00001`, ..."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from functools import lru_cache

from launcher.base.bounds import MAX_NUMBER

log = logging.getLogger(__name__)

_PASS = re.compile(r"pass-([0-9]{5,})")
_MOST_DIGITS = len(str(MAX_NUMBER))


def pass_name(number: int) -> str:
    return f"pass-{number:05d}"


def pass_folder(save_dir: str, number: int) -> str:
    return os.path.join(save_dir, pass_name(number))


def number_of(name: str) -> int | None:
    """Return the number of the pass whose folder has this name, or None if no pass has this name.

    A folder whose number is out of bounds, such as a time stamp, is no pass: Paddle cannot count from there.
    """
    match = _PASS.fullmatch(name)
    if match is None:
        return None
    digits = match.group(1)
    if len(digits) > _MOST_DIGITS or (number := int(digits)) >= MAX_NUMBER:
        _warn(name)
        return None
    return number if name == pass_name(number) else None


def pass_number(save_dir: str, path: str) -> int | None:
    """Return the number of the pass with this path, or None if the path is not a pass folder of `save_dir`."""
    folder, name = os.path.split(path)
    return number_of(name) if folder == save_dir.rstrip("/") else None


def pass_above(save_dir: str, path: str) -> int | None:
    """Return the number of the pass of `save_dir` that the path names or that contains the path, else None."""
    inside = os.path.join(save_dir, "")
    return number_of(path[len(inside) :].split("/")[0]) if path.startswith(inside) else None


def named_paths(words: Iterable[str], workdir: str) -> tuple[str, ...]:
    """Return all absolute paths that the words of a command line may name. Parts such as `--name=` are split off."""
    parts = (part for word in words for part in re.split(r"[=,:;\s]", word))
    paths = (os.path.normpath(os.path.join(workdir, part)) for part in parts if part and not part.startswith("-"))
    return tuple(dict.fromkeys(paths))


@lru_cache(maxsize=100)  # warns only once of each folder
def _warn(name: str) -> None:
    log.warning(f"{name} is ignored: its number is out of bounds, so it is no pass of this job")
