"""The passes that a job has saved: folders `pass-00000`, `pass-00001`, ... of which each counts once it has `done`.

Paddle v0 saves like this by itself; a program of today's Paddle does where it keeps to docs/resume.md. Everything here
blocks as long as the volume does: call it off the loop.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from launcher import volume

_PASS = re.compile(r"pass-(\d{5,})")


def folder(save_dir: str, number: int) -> str:
    """Where a pass is saved."""
    return os.path.join(save_dir, f"pass-{number:05d}")


def newest(save_dir: str, first: int = 0) -> int | None:
    """The last pass from `first` on that was saved as a whole."""
    return max((number for number in _passes(save_dir) if number >= first and is_whole(save_dir, number)), default=None)


def is_whole(save_dir: str, number: int) -> bool:
    """Only what is not there counts as missing: a volume that fails must not cost a pass."""
    done = os.path.join(folder(save_dir, number), "done")
    try:
        os.stat(done)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise volume.cannot_read(done, error) from None
    return True


def half_written(save_dir: str, first: int = 0) -> list[int]:
    """Passes from `first` on that an attempt has begun to save."""
    return [number for number in _passes(save_dir) if number >= first and not is_whole(save_dir, number)]


def all_from(save_dir: str, first: int = 0) -> list[int]:
    """Every pass from `first` on, whole or not."""
    return [number for number in _passes(save_dir) if number >= first]


def set_aside(save_dir: str, numbers: Iterable[int], into: str) -> None:
    """Move passes to a folder of their own, where nobody takes them for this attempt's. Nothing is deleted."""
    for number in numbers:
        source = folder(save_dir, number)
        volume.make_folder(into)
        try:
            os.rename(source, _unused(os.path.join(into, os.path.basename(source))))
        except FileNotFoundError:
            continue  # somebody cleans up there
        except OSError as error:
            raise volume.cannot_write(source, error) from None


def _passes(save_dir: str) -> list[int]:
    try:
        names = os.listdir(save_dir)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise volume.cannot_read(save_dir, error) from None
    numbers = (int(match.group(1)) for name in names if (match := _PASS.fullmatch(name)))
    return sorted(number for number in numbers if os.path.basename(folder(save_dir, number)) in names)


def _unused(path: str) -> str:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}.{number}"
    return free
