"""The folder names of saved passes: `pass-00000`, `pass-00001`, ..."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_PASS = re.compile(r"pass-([0-9]{5,10})")
_NUMBERS = 1 << 31  # Paddle counts passes in 31 bits, and so does the gang protocol


def pass_name(number: int) -> str:
    return f"pass-{number:05d}"


def pass_folder(save_dir: str, number: int) -> str:
    return os.path.join(save_dir, pass_name(number))


def number_of(name: str) -> int | None:
    """Return the number of the pass whose folder has this name, or None if no pass has this name."""
    match = _PASS.fullmatch(name)
    number = int(match.group(1)) if match else _NUMBERS
    return number if number < _NUMBERS and name == pass_name(number) else None


def pass_number(save_dir: str, path: str) -> int | None:
    """Return the number of the pass with this path, or None if the path is not a pass folder of `save_dir`."""
    folder, name = os.path.split(path)
    return number_of(name) if folder == save_dir.rstrip("/") else None


def pass_above(save_dir: str, path: str) -> int | None:
    """Return the number of the pass of `save_dir` that the path names, or in which it is. Return None if none is."""
    inside = os.path.join(save_dir, "")
    return number_of(path[len(inside) :].split("/")[0]) if path.startswith(inside) else None


def named_paths(words: Iterable[str], workdir: str) -> tuple[str, ...]:
    """Return all absolute paths that the words of a command line may name. Parts such as `--name=` are split off."""
    parts = (part for word in words for part in re.split(r"[=,:;\s]", word))
    paths = (os.path.normpath(os.path.join(workdir, part)) for part in parts if part and not part.startswith("-"))
    return tuple(dict.fromkeys(paths))
