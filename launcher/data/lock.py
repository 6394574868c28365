"""A lock on a folder, for processes in any pod. It does not use file locks, which many volumes do not support.

The lock is a file that contains the token of its holder. The holder touches the file every 2 s. If the file is not
touched for 10 s, the lock is stale.
"""

from __future__ import annotations

import logging
import os
import socket
import time

from launcher.base import entries
from launcher.base.file_errors import cannot_write, printable
from launcher.base.files import Folder
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

HEARTBEAT = 2.0  # seconds between touches
STALE_AFTER = 10.0  # seconds without a touch, by the clock of the process that waits
_POLL = 0.25
_LONGEST = 4096  # bytes of a token


class Lock:
    """A context manager that holds the lock. The caller must call `renew` about every second."""

    def __init__(self, path: str) -> None:
        folder, self._name = os.path.split(path)
        self._folder = Folder(folder)
        self._path = path
        self._token = f"process {os.getpid()} on {socket.gethostname()}, {os.urandom(8).hex()}".encode()
        self._next_touch = 0.0

    def __enter__(self) -> Lock:
        holder, touched = self._claim()
        if holder != self._token:
            self._take_over(holder, touched)
        return self

    def __exit__(self, *_: object) -> None:
        if self._holder() == self._token:
            self._folder.remove(self._name)

    def renew(self) -> None:
        """Touch the lock file if the last touch is long enough ago. Raises Failure if another process has the lock."""
        if time.monotonic() < self._next_touch:
            return
        if self._holder() != self._token:
            raise self._busy("has taken the lock of this command")
        self._folder.read_by(self._touch, self._name, cannot_write)
        self._next_touch = time.monotonic() + HEARTBEAT

    def _take_over(self, holder: bytes, touched: int) -> None:
        """Wait until the lock is stale, then take the lock. Raises Failure if its holder is alive."""
        name = _name(holder)
        waiting = f"waiting {STALE_AFTER:.0f} s to see whether {name} still runs"
        log.info(f"{printable(self._path)} is locked by {name}: {waiting}")
        deadline = time.monotonic() + STALE_AFTER
        while time.monotonic() < deadline:
            time.sleep(_POLL)
            now = self._claim()
            if now[0] == self._token:
                return
            if now != (holder, touched):
                raise self._busy("is working in this folder", now[0])
        if not self._remove_stale(holder) or self._claim()[0] != self._token:
            raise self._busy("has taken the lock first")

    def _holder(self) -> bytes | None:
        return self._folder.read(self._name, _LONGEST)

    def _claim(self) -> tuple[bytes, int]:
        """Create the file unless it exists. Return the token in the file, and when the file was last touched."""
        holder = self._folder.create(self._name, self._token, limit=_LONGEST)
        found = self._folder.stat(self._name)
        return (b"", 0) if found is None else (holder, found.st_mtime_ns)

    def _touch(self, folder: int) -> None:
        """Set the file's time to the current time of the volume's server."""
        os.utime(self._name, dir_fd=folder, follow_symlinks=False)

    def _remove_stale(self, token: bytes) -> bool:
        """Remove the file if it still contains this token. Return False if another process has taken the lock."""
        aside = f"{self._name}.{os.urandom(8).hex()}"
        self._folder.read_by(lambda folder: entries.move(self._name, aside, folder), self._name, cannot_write)
        found = self._folder.read(aside, _LONGEST)
        if found is None:
            return True
        if found != token:
            self._folder.create(self._name, found)  # another process has taken the lock first: put its file back
        self._folder.remove(aside)
        return found == token

    def _busy(self, does: str, holder: bytes = b"") -> Failure:
        who = f" ({_name(holder)})" if holder else ""
        where = printable(os.path.dirname(self._path))
        return Failure(
            Exit.CANNOT_WRITE,
            f"another `paddle-launcher shard`{who} {does}: {where}: wait until the other command ends",
        )


def _name(token: bytes) -> str:
    return printable(token.rsplit(b",", 1)[0])
