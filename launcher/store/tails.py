"""Read what was added to files since the last time: the timeline of a job or of a member, and the end of a log.

All functions block while the volume blocks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from launcher.base import entries
from launcher.base.files import Folder
from launcher.store import events
from launcher.store.events import Event

_AT_FIRST = 64 * 1024  # bytes of the end of a timeline that are read first
_AT_ONCE = 1024 * 1024  # bytes; if more was added since the last time, only the end is read
_LAST_LINES = 4096  # bytes of the end of a log


class EventTail:
    """The events that are added to a timeline. The first call of `read` returns events of the end of the file."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: tuple[int, int] | None = None
        self._offset = 0

    def read(self) -> list[Event]:
        """Return the new events. A file that is missing has none. Raises Failure if the file cannot be read."""
        path = self._folder.path_of(events.NAME)

        def read(folder: int) -> bytes:
            fd = entries.open_file(folder, events.NAME, path)
            try:
                return self._read(fd)
            finally:
                os.close(fd)

        return list(events.parse(self._folder.read_by(read, events.NAME) or b""))

    def _read(self, fd: int) -> bytes:
        """Return all whole lines after the offset. An unfinished line is read the next time."""
        found = os.fstat(fd)
        file = found.st_dev, found.st_ino
        is_new = file != self._file or found.st_size < self._offset
        begin = 0 if is_new else self._offset
        most = _AT_FIRST if is_new else _AT_ONCE
        skips = found.st_size - begin > most
        begin = found.st_size - most if skips else begin
        os.lseek(fd, begin, os.SEEK_SET)
        data = entries.read_at_most(fd, most)
        whole = data.rfind(b"\n") + 1
        self._file, self._offset = file, begin + whole
        return data[data.find(b"\n") + 1 if skips else 0 : whole]


@dataclass(frozen=True)
class LogEnd:
    """The last line of a log, without its end, and when the log was last written, by the volume's clock."""

    line: str
    at: float


def read_log_end(folder: Folder, name: str) -> LogEnd | None:
    """Return the end of a log, or None if the log is missing or empty. Raises Failure if it cannot be read."""
    path = folder.path_of(name)

    def read(at: int) -> LogEnd | None:
        fd = entries.open_file(at, name, path)
        try:
            found = os.fstat(fd)
            os.lseek(fd, max(0, found.st_size - _LAST_LINES), os.SEEK_SET)
            line = last_line(entries.read_at_most(fd, _LAST_LINES))
        finally:
            os.close(fd)
        return LogEnd(line, found.st_mtime) if line else None

    return folder.read_by(read, name)


def last_line(output: bytes) -> str:
    """Return the last line that is not empty, or "". A progress bar writes its lines with carriage returns."""
    lines = (line.strip() for line in reversed(output.replace(b"\r", b"\n").split(b"\n")))
    return next((line.decode(errors="replace") for line in lines if line), "")
