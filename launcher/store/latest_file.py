"""A small file on the volume that always holds the newest version, written off the loop whatever the volume does."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from launcher.base import files
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)


def as_bytes(content: Mapping[str, Any]) -> bytes:
    """As such a file holds it."""
    return json.dumps(content, indent=1).encode() + b"\n"


class LatestFile:
    """Versions that come while one is being written replace each other: a slow volume sees the last, not all.

    The file belongs to whoever began to write it last: what ends late, as a deleted job may, leaves it to the next.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._newest: bytes | None = None
        self._writing = False
        self._complained = False
        self._written: set[bytes] = set()  # what the file may hold from here

    def put(self, content: Mapping[str, Any]) -> None:
        with self._changed:
            self._newest = as_bytes(content)
            if not self._writing:
                self._writing = True
                threading.Thread(target=self._write, daemon=True, name=f"write {self._path}").start()

    def flush(self, within: float) -> bool:
        """Wait until the newest version is written. Blocks: call it off the loop."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writing, within)

    def _write(self) -> None:
        while True:
            with self._changed:
                data, self._newest = self._newest, None
                if data is None:
                    self._writing = False
                    self._changed.notify_all()
                    return
            try:
                self._replace(data)
                self._complained = False
            except Failure as failure:
                if not self._complained:
                    log.info(failure.message)
                self._complained = True

    def _replace(self, data: bytes) -> None:
        if self._written and self._content() not in (None, *self._written):
            raise Failure(Exit.CANNOT_WRITE, f"{self._path} is left to a later run of this job, which has written it")
        files.make_folder(os.path.dirname(self._path))
        self._written.add(data)
        files.write_atomically(self._path, data)
        self._written = {data}

    def _content(self) -> bytes | None:
        try:
            return files.read_if_exists(self._path)
        except OSError as error:
            raise files.cannot_read(self._path, error) from None
