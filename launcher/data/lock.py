"""Keeps two runs from writing to one folder, from whichever pods, without the file locks that many volumes lack.

The lock is a file with its holder's token, touched all the time. One that nobody touches for a while was left behind.
"""

from __future__ import annotations

import logging
import os
import socket
import time

from launcher.base.files import shown
from launcher.data import notes
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

BEAT = 2.0  # seconds between touches
PATIENCE = 10.0  # seconds without a touch, as seen here, until a lock counts as left behind
_POLL = 0.25


class Lock:
    """Held inside a `with`. Call `beat` about every second."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token = f"process {os.getpid()} on {socket.gethostname()}, {os.urandom(8).hex()}".encode()
        self._next_beat = 0.0

    def __enter__(self) -> Lock:
        holder, touched = notes.claim(self._path, self._token)
        if holder != self._token:
            self._take_over(holder, touched)
        return self

    def __exit__(self, *_: object) -> None:
        if notes.read_file(self._path) == self._token:
            os.unlink(self._path)

    def beat(self) -> None:
        """Show that the holder lives, and find out if the lock was lost."""
        if time.monotonic() < self._next_beat:
            return
        if notes.read_file(self._path) != self._token:
            raise self._busy("has taken over")
        notes.touch(self._path)
        self._next_beat = time.monotonic() + BEAT

    def _take_over(self, holder: bytes, touched: int) -> None:
        """Wait until the lock is clearly left behind, then make it ours."""
        log.info(f"{shown(self._path)} is held by {_name(holder)}: waiting {PATIENCE:.0f} s to see if that still runs")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            time.sleep(_POLL)
            now = notes.claim(self._path, self._token)
            if now[0] == self._token:
                return
            if now != (holder, touched):
                raise self._busy("is at work there", now[0])
        if not notes.take_away(self._path, holder) or notes.claim(self._path, self._token)[0] != self._token:
            raise self._busy("was faster")

    def _busy(self, does: str, holder: bytes = b"") -> Failure:
        who = f" ({_name(holder)})" if holder else ""
        where = shown(os.path.dirname(self._path))
        return Failure(Exit.CANNOT_WRITE, f"another `paddle-launcher shard`{who} {does}: {where}: let it end first")


def _name(token: bytes) -> str:
    return shown(token.rsplit(b",", 1)[0])
