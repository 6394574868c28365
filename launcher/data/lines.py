"""Where to cut a file of lines. Run by workers, since reading may block."""

from __future__ import annotations

import os

from launcher.base.files import cannot_read

_WINDOW = 1024 * 1024


def line_bounds(path: bytes, shares: int) -> list[int]:
    """Where to cut a file into `shares` parts of whole lines and about equal bytes: shares + 1 offsets.

    Gives as many as there are lines to give if that is fewer. Reads only around each cut, a buffer at a time.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            bounds = [0]
            for share in range(1, shares):
                bounds.append(_next_line(file.fileno(), max(size * share // shares, bounds[-1] + 1), size))
            bounds.append(size)
            for share in range(shares - 1, 0, -1):  # a long line at the end: shares before it give up lines
                if bounds[share] >= bounds[share + 1]:
                    bounds[share] = _line_before(file.fileno(), bounds[share + 1])
    except OSError as error:
        raise cannot_read(path, error) from error
    return sorted(set(bounds))


def _next_line(fd: int, position: int, size: int) -> int:
    """The first offset at or after `position` where a line begins, or the end."""
    position -= 1
    while position < size:
        data = os.pread(fd, _WINDOW, position)
        if not data:
            break
        found = data.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(data)
    return size


def _line_before(fd: int, position: int) -> int:
    """The last offset before `position` where a line begins."""
    end = position - 1
    while end > 0:
        start = max(0, end - _WINDOW)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
