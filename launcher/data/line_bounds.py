"""Compute where to cut a text file into parts of whole lines. The pool's workers do this, since reading may block."""

from __future__ import annotations

import os

from launcher.base.file_errors import cannot_read

_WINDOW = 1024 * 1024


def find_line_bounds(path: bytes, count: int) -> list[int]:
    """Return count + 1 offsets that cut a file into `count` parts of whole lines and of about equal size.

    Return fewer offsets if the file has fewer than `count` lines. Read the file only near each cut.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            bounds = [0]
            for part in range(1, count):
                bounds.append(_next_line(file.fileno(), max(size * part // count, bounds[-1] + 1), size))
            bounds.append(size)
            for part in range(
                count - 1, 0, -1
            ):  # if the last line is long, lines must move from the first parts to the last parts
                if bounds[part] >= bounds[part + 1]:
                    bounds[part] = _previous_line(file.fileno(), bounds[part + 1])
    except OSError as error:
        raise cannot_read(path, error) from error
    return sorted(set(bounds))


def _next_line(fd: int, position: int, size: int) -> int:
    """Return the first offset at or after `position` at which a line begins, or `size` if no line begins there."""
    position -= 1
    while position < size:
        data = os.pread(fd, _WINDOW, position)
        if not data:
            break
        index = data.find(b"\n")
        if index >= 0:
            return position + index + 1
        position += len(data)
    return size


def _previous_line(fd: int, position: int) -> int:
    """Return the last offset before `position` at which a line begins."""
    end = position - 1
    while end > 0:
        start = max(0, end - _WINDOW)
        index = os.pread(fd, end - start, start).rfind(b"\n")
        if index >= 0:
            return start + index + 1
        end = start
    return 0
