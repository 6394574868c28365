"""What was put where, kept beside it: so a later start knows what is complete, and what it may remove or reuse."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from launcher.data import notes
from launcher.data.pool import Pool

_VERSION = 1


class StageRecord:
    """One file for all destinations of a work directory. It says "incomplete" before anything there is touched."""

    def __init__(self, pool: Pool, path: str) -> None:
        self._pool = pool
        self._path = path
        self._destinations: dict[str, Any] = _parse(pool.call(notes.read_file, path))

    def names(self, destination: str) -> set[bytes]:
        """What this launcher put there or was about to; folders end with a slash."""
        return {os.fsencode(name) for name in self._destinations.get(destination, {}).get("names", ())}

    def complete(self, destination: str) -> bool:
        """Whether the last copy to there came to its end."""
        return bool(self._destinations.get(destination, {}).get("complete"))

    def known(self, destination: str) -> bool:
        """Whether anything was ever put there."""
        return destination in self._destinations

    def write(self, destination: str, source: str, names: Iterable[bytes], complete: bool) -> None:
        """Say what is at a destination now."""
        self._destinations[destination] = {
            "source": source,
            "complete": complete,
            "names": sorted(map(os.fsdecode, names)),
        }
        data = json.dumps({"version": _VERSION, "destinations": self._destinations}).encode()
        self._pool.call(notes.write_file, self._path, data)


def _parse(data: bytes) -> dict[str, Any]:
    """A record of another version, or one that cannot be read, is as none: everything is copied again."""
    try:
        content = json.loads(data)
        destinations = content["destinations"] if content["version"] == _VERSION else {}
    except (ValueError, TypeError, KeyError):
        return {}
    return destinations if isinstance(destinations, dict) else {}
