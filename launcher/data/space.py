"""Check before copies that the file systems have enough free space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.base.file_errors import printable
from launcher.data import inspection
from launcher.data.inspection import File
from launcher.data.pool import Pool
from launcher.data.progress import format_size
from launcher.errors import Exit, Failure


class Need:
    """The space that one copy needs below `path`: bytes for `files`, and inodes.

    freed: the bytes of the files that this copy replaces
    """

    def __init__(self, what: str, path: bytes, files: Sequence[File], inodes: int, freed: int = 0) -> None:
        self.what = what
        self.path = path
        self.files = files
        self.inodes = inodes
        self.freed = freed


def check(pool: Pool, needs: Iterable[Need]) -> None:
    """Raise Failure (CANNOT_WRITE) if a file system has too few free bytes or inodes for all copies to it together."""
    by_device: dict[int, list[Need]] = {}
    spaces: dict[int, tuple[int, int, int, bytes]] = {}
    for need in needs:
        device, block, free, free_inodes, folder = pool.call(inspection.free_space, need.path)
        by_device.setdefault(device, []).append(need)
        spaces[device] = block, free, free_inodes, folder
    for device, needs_of_device in by_device.items():
        _check(needs_of_device, *spaces[device])


def _check(needs: list[Need], block: int, free: int, free_inodes: int, folder: bytes) -> None:
    what = " and ".join(need.what for need in needs)
    needed = sum(_bytes(need, block) for need in needs)
    if needed > free:
        sizes = f"{format_size(needed)} needed, {format_size(free)} free"
        text = f"not enough space for {what} below {printable(folder)}: {sizes}"
        raise Failure(Exit.CANNOT_WRITE, f"{text}: free some space on this volume, or use a larger volume")
    inodes = sum(need.inodes for need in needs)
    if 0 <= free_inodes < inodes:
        text = f"not enough inodes for {what} below {printable(folder)}: {inodes:,} needed, {free_inodes:,} free"
        raise Failure(Exit.CANNOT_WRITE, f"{text}: remove files from this file system, or use another file system")


def _bytes(need: Need, block: int) -> int:
    """Return how many bytes the copy needs, with each file size rounded up to whole blocks.

    The result is at least the largest file, because a new file is complete before it replaces the old one.
    """
    sizes = [-(-file[2] // block) * block for file in need.files]
    return max(sum(sizes) - need.freed, max(sizes, default=0))
