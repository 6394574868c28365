"""The passes that a job has saved: folders `pass-00000`, `pass-00001`, ... A pass is complete once `done` is in it.

Paddle v0 saves passes in this way. A program for Paddle 2.x or 3.x must save passes as docs/resume.md describes. All
functions block while the volume blocks: the event loop must not call them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from functools import partial

from launcher.base import entries, file_errors, files
from launcher.base.passes import number_of, pass_above, pass_folder
from launcher.model import Saves

_HEADER = struct.Struct("<iIQ")  # of a parameter file of v0: the format (0), the bytes per value, the number of values
_NO_MODEL = ("path.txt", ".py", ".conf")  # v0 copies its configuration into a pass, after `done`

NOT_DONE = "it has no file done"  # the flaw of a pass that is still being written, or was never finished


def survey(saves: Saves) -> tuple[int | None, dict[int, str]]:
    """Return the newest whole pass, or None, and all passes after it, each with what is wrong with it.

    Older passes are not examined: no generation resumes from them.
    """
    flaws: dict[int, str] = {}
    for number in reversed(all_passes(saves)):
        problem = flaw(saves, number)
        if problem is None:
            return number, flaws
        flaws[number] = problem
    return None, flaws


def newest(saves: Saves) -> int | None:
    """Return the number of the newest whole pass of the job, or None."""
    return survey(saves)[0]


def flaw(saves: Saves, number: int) -> str | None:
    """Return what is wrong with a pass, or None if the pass is whole.

    A whole pass has the file `done`, and no other file in it is cut short.
    """
    place = pass_folder(saves.folder, number)
    try:
        if not files.exists(os.path.join(place, "done")):
            return NOT_DONE
        return entries.unless_stale(partial(_damage, place, saves.of_v0))
    except (FileNotFoundError, NotADirectoryError):
        return NOT_DONE
    except OSError as error:
        raise file_errors.cannot_read(place, error) from None


def all_passes(saves: Saves) -> list[int]:
    """Return the numbers of all passes of the job in order, whole or not."""
    try:
        names = entries.unless_stale(partial(os.listdir, saves.folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise file_errors.cannot_read(saves.folder, error) from None
    named = _named(saves)
    numbers = (number_of(name) for name in names)
    return sorted(each for each in numbers if each is not None and each >= saves.first and each not in named)


def set_aside(save_dir: str, numbers: Iterable[int], into: str) -> None:
    """Move passes to the folder `into`, where no attempt resumes from them. Nothing is deleted."""
    places = [pass_folder(save_dir, number) for number in numbers]
    if not places:
        return
    files.make_folder(into)
    for source in places:
        try:
            target = _unused(os.path.join(into, os.path.basename(source)))
            entries.unless_stale(partial(entries.move, source, target))
        except FileNotFoundError:
            continue  # a user has removed the folder meanwhile
        except OSError as error:
            raise file_errors.cannot_write(source, error) from None
    try:  # one sync for all passes: each sync takes milliseconds
        for changed in (into, save_dir):
            files.sync_folder(changed)
    except OSError as error:
        raise file_errors.cannot_write(into, error) from None


def _named(saves: Saves) -> set[int | None]:
    """Return the passes that the command line names, for example as the model to begin with. Links are followed."""
    folder = os.path.realpath(saves.folder)
    return {
        number
        for path in saves.named
        for number in (pass_above(saves.folder, path), pass_above(folder, os.path.realpath(path)))
    }


def _damage(place: str, of_v0: bool) -> str | None:
    """Return which file of a pass is cut short, or None.

    A power loss cuts files short, since Paddle v0 does not sync its files before it writes `done`. On a full volume,
    Paddle v0 loses small files without an error: they are empty, and `done` is there. A file without the header of a
    parameter may have any content. An empty file of this kind is a sign of damage in two cases: Paddle v0 saved the
    pass, or all files of the pass are empty.
    """
    found = sorted((entry for entry in os.scandir(place) if _is_of_model(entry)), key=lambda entry: entry.name)
    sizes = [entry.stat().st_size for entry in found]
    wanted = [_wanted_size(entry, of_v0) for entry in found]
    is_v0 = of_v0 or any(size is not None for size in wanted)
    for entry, size, whole in zip(found, sizes, wanted, strict=True):
        if not size and (is_v0 or not any(sizes)):
            return f"its file {file_errors.printable(entry.name)} is empty"
        if whole is not None and size < whole:
            return f"its file {file_errors.printable(entry.name)} has only {size} of {whole} bytes"
    return None


def _is_of_model(entry: os.DirEntry[str]) -> bool:
    return entry.is_file() and entry.name != "done" and not entry.name.endswith(_NO_MODEL)


def _wanted_size(file: os.DirEntry[str], of_v0: bool) -> int | None:
    """Return how many bytes a parameter file of v0 has at least. Return None for an empty file or any other file."""
    with open(file.path, "rb") as opened:
        header = opened.read(_HEADER.size)
    if len(header) < _HEADER.size:
        begins_as_header = of_v0 and header and not any(header[:4])
        return _HEADER.size if begins_as_header else None
    kind, width, count = _HEADER.unpack(header)
    return _HEADER.size + int(width) * int(count) if kind == 0 and width in (4, 8) else None


def _unused(path: str) -> str:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}.{number}"
    return free
