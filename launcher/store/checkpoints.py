"""The passes that a job has saved: folders `pass-00000`, `pass-00001`, ... A pass is complete once `done` is in it.

Paddle v0 saves passes in this way. A program for Paddle 2.x or 3.x must save passes as docs/resume.md describes. All
functions block while the volume blocks: the event loop must not call them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from launcher.base import files
from launcher.base.passes import pass_folder, pass_number

_HEADER = struct.Struct("<iIQ")


def newest(save_dir: str, first: int = 0) -> int | None:
    """Return the number of the newest complete pass that is not below `first`, or None."""
    return next((number for number in reversed(all_from(save_dir, first)) if is_complete(save_dir, number)), None)


def is_complete(save_dir: str, number: int) -> bool:
    """Return whether the folder of a pass has the file `done`, and no other file in it is cut short."""
    place = pass_folder(save_dir, number)
    try:
        return files.exists(os.path.join(place, "done")) and not _is_cut_short(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise files.cannot_read(place, error) from None


def incomplete(save_dir: str, first: int = 0) -> list[int]:
    """Return the numbers of the incomplete passes, from `first` on."""
    return [number for number in all_from(save_dir, first) if not is_complete(save_dir, number)]


def all_from(save_dir: str, first: int = 0) -> list[int]:
    """Return the numbers of all passes from `first` on, complete or not."""
    return [number for number in _passes(save_dir) if number >= first]


def set_aside(save_dir: str, numbers: Iterable[int], into: str) -> None:
    """Move passes to the folder `into`, where no attempt resumes from them. Nothing is deleted."""
    for number in numbers:
        source = pass_folder(save_dir, number)
        files.make_folder(into)
        try:
            target = _unused(os.path.join(into, os.path.basename(source)))
            os.rename(source, target)
            files.sync_folder(target)
            files.sync_folder(source)
        except FileNotFoundError:
            continue  # a user has removed the folder meanwhile
        except OSError as error:
            raise files.cannot_write(source, error) from None


def _is_cut_short(place: str) -> bool:
    """Return whether a power loss cut files short: Paddle v0 does not sync its files before it writes `done`.

    A parameter file of v0 has a header: the format (0), the bytes per value, the number of values. A file without this
    header may have any content. An empty file is a sign of a power loss only if all files of the pass are empty, or if
    the pass has parameter files of v0.
    """
    files = [entry for entry in os.scandir(place) if entry.is_file() and entry.name != "done"]
    missing = [_missing_bytes(file) for file in files]
    empty = [not file.stat().st_size for file in files]
    parameters = any(count is not None for count in missing)
    return any(count or 0 for count in missing) or (bool(files) and (all(empty) or (parameters and any(empty))))


def _missing_bytes(file: os.DirEntry[str]) -> int | None:
    """Return how many bytes are missing at the end of a parameter file of v0. Return None for any other file."""
    with open(file.path, "rb") as opened:
        header = opened.read(_HEADER.size)
    kind, width, count = _HEADER.unpack(header) if len(header) == _HEADER.size else (None, 0, 0)
    if kind != 0 or width not in (4, 8):
        return None
    return max(_HEADER.size + int(width) * int(count) - file.stat().st_size, 0)


def _passes(save_dir: str) -> list[int]:
    try:
        names = os.listdir(save_dir)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise files.cannot_read(save_dir, error) from None
    numbers = (pass_number(save_dir, os.path.join(save_dir, name)) for name in names)
    return sorted(number for number in numbers if number is not None)


def _unused(path: str) -> str:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}.{number}"
    return free
