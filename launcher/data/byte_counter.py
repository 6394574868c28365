"""Bytes copied, counted in memory that all workers share: the holder of the pool reads it without asking them."""

from __future__ import annotations

import mmap
import struct

SLOTS = 32
_COUNT = struct.Struct("@q")
_counts = mmap.mmap(-1, _COUNT.size * SLOTS)
_slot = 0


def use(slot: int) -> None:
    """This worker counts here; no other that lives does."""
    global _slot
    _slot = slot * _COUNT.size


def add(count: int) -> None:
    """So many more bytes were copied."""
    _COUNT.pack_into(_counts, _slot, _COUNT.unpack_from(_counts, _slot)[0] + count)


def total() -> int:
    """Bytes copied by all workers of this process and of pools before."""
    return sum(count for (count,) in _COUNT.iter_unpack(_counts[:]))
