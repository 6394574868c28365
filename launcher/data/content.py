"""The bytes of one file: inside the kernel where the two file systems allow it, by reading and writing where not."""

from __future__ import annotations

import os
from collections.abc import Callable

_SMALL = 256 * 1024  # below this one read and one write beat what the kernel does to splice
_CHUNK = 8 * 1024 * 1024  # progress is counted by chunks
_BUFFER = 1024 * 1024


def move(source: int, target: int, start: int, length: int, at: int, moved: Callable[[int], None]) -> int:
    """Copy `length` bytes at offset `start` of one open file to offset `at` of another; gives how many there were.

    File systems refuse the faster ways with many different errors, or by 0 bytes, so any trouble leads to the next
    way, and the plainest has the last word.
    """
    done = 0
    if length > _SMALL:
        os.posix_fadvise(source, start, length, os.POSIX_FADV_SEQUENTIAL)  # read ahead further: fewer round trips
    for way in (_read_and_write,) if length <= _SMALL else (_copy_file_range, _sendfile, _read_and_write):
        try:
            while done < length:
                count = way(source, target, start + done, at + done, min(_CHUNK, length - done))
                if count == 0:
                    break
                done += count
                moved(count)
        except OSError:
            if way is _read_and_write:
                raise
    return done


def _copy_file_range(source: int, target: int, start: int, at: int, length: int) -> int:
    return os.copy_file_range(source, target, length, start, at)


def _sendfile(source: int, target: int, start: int, at: int, length: int) -> int:
    os.lseek(target, at, os.SEEK_SET)
    return os.sendfile(target, source, start, length)


def _read_and_write(source: int, target: int, start: int, at: int, length: int) -> int:
    data = os.pread(source, min(length, _BUFFER), start)
    return os.pwrite(target, data, at) if data else 0  # what a short write left out is read again
