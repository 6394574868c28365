"""Whether there is room for what is to be copied, before the first byte is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.base.files import shown
from launcher.data import inspection
from launcher.data.inspection import File
from launcher.data.pool import Pool
from launcher.data.progress import size
from launcher.errors import Exit, Failure


class Need:
    """What one copy needs below `place`: room for files, and inodes. `freed`: bytes that it replaces on the way."""

    def __init__(self, what: str, place: bytes, files: Sequence[File], inodes: int, freed: int = 0) -> None:
        self.what = what
        self.place = place
        self.files = files
        self.inodes = inodes
        self.freed = freed


def check(pool: Pool, needs: Iterable[Need]) -> None:
    """CANNOT_WRITE with the numbers when a file system has not enough bytes or inodes for all that goes to it."""
    by_device: dict[int, list[Need]] = {}
    rooms: dict[int, tuple[int, int, int, bytes]] = {}
    for need in needs:
        device, block, free, inodes, where = pool.call(inspection.room, need.place)
        by_device.setdefault(device, []).append(need)
        rooms[device] = block, free, inodes, where
    for device, those in by_device.items():
        _check(those, *rooms[device])


def _check(needs: list[Need], block: int, free: int, inodes: int, where: bytes) -> None:
    what = " and ".join(need.what for need in needs)
    needed = sum(_bytes(need, block) for need in needs)
    if needed > free:
        text = f"no room for {what} below {shown(where)}: {size(needed)} are needed, {size(free)} are free"
        raise Failure(Exit.CANNOT_WRITE, f"{text}: free some space there, or give it more")
    entries = sum(need.inodes for need in needs)
    if 0 <= inodes < entries:
        text = f"no room for {what} below {shown(where)}: {entries:,} inodes are needed, {inodes:,} are free"
        raise Failure(Exit.CANNOT_WRITE, f"{text}: it holds too many files; remove some, or use another file system")


def _bytes(need: Need, block: int) -> int:
    """In whole blocks. What is replaced makes room as the copy goes, but the new file comes before the old one goes."""
    sizes = [-(-file[2] // block) * block for file in need.files]
    return max(sum(sizes) - need.freed, max(sizes, default=0))
