"""A lock on a folder, for processes in any pod. It does not use file locks, which many volumes do not support.

The lock is a file that contains the token of its holder. The holder touches the file every 2 s. If the file is not
touched for 10 s, the lock is stale.
"""

from __future__ import annotations

import logging
import os
import socket
import time

from launcher.base.files import cannot_read, cannot_write, create_once, make_folder, printable
from launcher.data.inspection import read_file
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

HEARTBEAT = 2.0  # seconds between touches
STALE_AFTER = 10.0  # seconds without a touch, by the clock of the process that waits
_POLL = 0.25


class Lock:
    """A context manager that holds the lock. The caller must call `renew` about every second."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token = f"process {os.getpid()} on {socket.gethostname()}, {os.urandom(8).hex()}".encode()
        self._next_touch = 0.0

    def __enter__(self) -> Lock:
        holder, touched = _claim(self._path, self._token)
        if holder != self._token:
            self._take_over(holder, touched)
        return self

    def __exit__(self, *_: object) -> None:
        if read_file(self._path) == self._token:
            os.unlink(self._path)

    def renew(self) -> None:
        """Touch the lock file if the last touch is long enough ago. Raises Failure if another process has the lock."""
        if time.monotonic() < self._next_touch:
            return
        if read_file(self._path) != self._token:
            raise self._busy("has taken the lock of this command")
        _touch(self._path)
        self._next_touch = time.monotonic() + HEARTBEAT

    def _take_over(self, holder: bytes, touched: int) -> None:
        """Wait until the lock is stale, then take the lock. Raises Failure if its holder is alive."""
        name = _name(holder)
        waiting = f"waiting {STALE_AFTER:.0f} s to see whether {name} still runs"
        log.info(f"{printable(self._path)} is locked by {name}: {waiting}")
        deadline = time.monotonic() + STALE_AFTER
        while time.monotonic() < deadline:
            time.sleep(_POLL)
            now = _claim(self._path, self._token)
            if now[0] == self._token:
                return
            if now != (holder, touched):
                raise self._busy("is working in this folder", now[0])
        if not _remove_stale(self._path, holder) or _claim(self._path, self._token)[0] != self._token:
            raise self._busy("has taken the lock first")

    def _busy(self, does: str, holder: bytes = b"") -> Failure:
        who = f" ({_name(holder)})" if holder else ""
        where = printable(os.path.dirname(self._path))
        return Failure(
            Exit.CANNOT_WRITE,
            f"another `paddle-launcher shard`{who} {does}: {where}: wait until the other command ends",
        )


def _name(token: bytes) -> str:
    return printable(token.rsplit(b",", 1)[0])


def _claim(path: str, token: bytes) -> tuple[bytes, int]:
    """Create the file unless it exists. Return the token in the file, and when the file was last touched."""
    make_folder(os.path.dirname(path))
    holder = create_once(path, token)
    try:
        with open(path, "rb") as file:  # opening makes an NFS client ask the server; a plain stat may be out of date
            return holder, os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return b"", 0
    except OSError as error:
        raise cannot_read(path, error) from error


def _touch(path: str) -> None:
    """Set the file's time to the current time of the volume's server."""
    try:
        os.utime(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def _remove_stale(path: str, token: bytes) -> bool:
    """Remove the file if it still contains this token. Return False if another process has taken the lock."""
    aside = f"{path}.{os.urandom(8).hex()}"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise cannot_write(path, error) from error
    is_stale = read_file(aside) == token
    if not is_stale:
        create_once(path, read_file(aside))  # another process has taken the lock first: put its file back
    os.unlink(aside)
    return is_stale
