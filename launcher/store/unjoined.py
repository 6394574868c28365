"""The ends of pods that never joined a gang: one file per pod, in output/.launcher/unjoined.

A pod without a gang has no rank that it can rely on, and another gang may use the folders of the ranks. The hub of the
next gang removes the files. All functions block while the volume blocks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from launcher.base.clock import stamp
from launcher.base.files import Folder, is_folder
from launcher.errors import Failure
from launcher.store import json_fields

log = logging.getLogger(__name__)

_MOST_READ = 50  # files; all pods of a job usually say the same


def _folder(output: str) -> Folder:
    return Folder(output, ".launcher", "unjoined")


def add(output: str, pod: str, exit_code: int, cause: Mapping[str, Any] | None) -> None:
    """Write how this pod ended, unless the job's folder is missing: without a volume it would be in the container.

    Raises Failure.
    """
    if not is_folder(os.path.dirname(output)):
        return
    content = {"at": stamp(), "pod": pod, "exit_code": exit_code, "first_cause": cause}
    _folder(output).write(pod, json_fields.as_bytes(content))


def clear(output: str) -> None:
    """Remove all files, as far as possible: a gang has formed."""
    folder = _folder(output)
    try:
        for name in folder.names():
            folder.remove(name)
    except Failure as failure:  # the report ignores files that are older than the gang
        log.info(failure.message)


def ends(output: str) -> list[dict[str, Any]]:
    """Return the content of the files, as it is: the caller must check all fields. Raises Failure."""
    folder, found = _folder(output), []
    for name in sorted(folder.names())[:_MOST_READ]:
        try:
            found.append(json_fields.read_object(folder.read(name) or b""))
        except ValueError:
            continue  # it is being written, or another user has changed it
    return found
