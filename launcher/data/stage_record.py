"""The record of copied files: a file in the work directory. A later start reuses or removes these copies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from launcher.data import files, inspection
from launcher.data.pool import Pool

_VERSION = 1
_LIMIT = 1 << 30  # bytes: about ten million files


class StageRecord:
    """One record for all destinations.

    Before the caller changes a destination, it must call `write` with `complete` false.
    """

    def __init__(self, pool: Pool, path: str) -> None:
        self._pool = pool
        self._path = path
        self._destinations: dict[str, Any] = _parse(pool.call(inspection.read_file, path, _LIMIT))

    def destinations(self) -> list[str]:
        """Return all destinations to which a copy was ever started."""
        return list(self._destinations)

    def forget(self, destination: str) -> None:
        """Remove the entry of a destination whose folder is removed. The next `write` writes this to the disk."""
        self._destinations.pop(destination, None)

    def names(self, destination: str) -> set[bytes]:
        """Return the paths that staging has copied, or started to copy. The paths of folders end with a slash."""
        return {os.fsencode(name) for name in self._destinations.get(destination, {}).get("names", ())}

    def is_complete(self, destination: str) -> bool:
        """Return whether the last copy to this destination was completed."""
        return bool(self._destinations.get(destination, {}).get("complete"))

    def is_known(self, destination: str) -> bool:
        """Return whether a copy to this destination was ever started."""
        return destination in self._destinations

    def write(self, destination: str, source: str, names: Iterable[bytes], complete: bool) -> None:
        """Replace the entry of a destination."""
        self._destinations[destination] = {
            "source": source,
            "complete": complete,
            "names": sorted(map(os.fsdecode, names)),
        }
        data = json.dumps({"version": _VERSION, "destinations": self._destinations}).encode()
        self._pool.call(files.write_file, self._path, data)


def _parse(data: bytes) -> dict[str, Any]:
    """Return the destinations, or {} if the record is damaged or of another version. Then all files are copied."""
    try:
        content = json.loads(data)
        destinations = content["destinations"] if content["version"] == _VERSION else {}
        return destinations if all(map(_is_entry, destinations.values())) else {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _is_entry(entry: Any) -> bool:
    """Return whether an entry has the right types. Its files must be below the destination: they may be removed."""
    names = entry["names"]
    return isinstance(names, list) and type(entry["complete"]) is bool and all(map(_is_below, names))


def _is_below(name: Any) -> bool:
    path = os.fsencode(name)
    return not path.startswith(b"/") and b".." not in path.split(b"/") and b"\0" not in path
