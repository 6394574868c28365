"""Read the timeline of a job, and check it against the schema and the status files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema

from launcher.base.files import Folder
from launcher.store import events
from launcher.store.events import Event, fold_job, fold_member
from tests.support.paths import REPOSITORY

_SCHEMA = jsonschema.Draft202012Validator(
    json.loads((REPOSITORY / "launcher" / "store" / "events.schema.json").read_bytes())
)


def timeline(folder: Path) -> list[Event]:
    """Return the events of a file. Each of its lines is an event of the schema."""
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    for line in lines:
        _SCHEMA.validate(json.loads(line))
    found = events.read(Folder(str(folder)))
    assert len(found) == len(lines)
    return found


def named(folder: Path, *names: str) -> list[Event]:
    return [event for event in timeline(folder) if event["event"] in names]


def check_replay(output: Path) -> None:
    """The events of a job that has ended make the same job.json and the same status.json of each member."""
    nothing: Mapping[str, Any] = {}
    assert reduce(fold_job, timeline(output), nothing) == _content(output / "job.json")
    folders = [path.parent for path in output.glob("*/status.json")]
    assert folders
    for folder in folders:
        assert reduce(fold_member, timeline(folder), nothing) == _content(folder / "status.json")


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content
