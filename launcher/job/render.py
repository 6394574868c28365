"""A file with PaddleJobs: read as a whole, for `render` and for `submit`; what cannot be honoured on standard error."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from launcher.errors import Exit, Failure
from launcher.job import from_yaml, yaml_io
from launcher.job.findings import Found, Note
from launcher.job.manifests import objects
from launcher.job.spec import JobSpec, Json
from launcher.job.yaml_io import Document

STANDARD_INPUT = "-"
_DONE = {"render": "rendered", "submit": "submitted"}


def render(file: str, asked: from_yaml.Asked, *, strict: bool) -> str:
    """The manifests of a file."""
    parts: list[str] = []
    for document, gang in read("render", file, asked, strict=strict):
        if gang is None:
            parts.append(document.text or yaml_io.written(document.value))
        else:
            parts += [yaml_io.written(made) for made in objects(gang)]
    return "---\n".join(parts).rstrip("\n")


def read(command: str, file: str, asked: from_yaml.Asked, *, strict: bool) -> list[tuple[Document, JobSpec | None]]:
    """Its objects in order, those that are jobs as gangs. When anything is wrong in it, all of that is told."""
    given = yaml_io.read(_content(file), _called(file))
    jobs = [document for document in given if _is_job(document)]
    if not jobs:
        raise Failure(Exit.CONFIG, f"{_called(file)}: {_no_job(given)}")
    others = [document.value for document in given if not _is_job(document)]
    made: list[tuple[Document, JobSpec | None]] = []
    problems: list[Note] = []
    notes: list[Note] = []
    for document in given:
        if not _is_job(document):
            made.append((document, None))
            continue
        found = Found()
        gang = from_yaml.job_spec(document.value, others, asked, found)
        problems += _named(found.problems, document, jobs)
        notes += _named(found.notes, document, jobs)
        if gang is not None:
            made.append((document, gang))
    if problems:
        raise Failure(Exit.CONFIG, "\n".join(map(str, problems)))
    if notes and strict:
        raise Failure(Exit.CONFIG, "\n".join([*map(str, notes), f"nothing was {_DONE[command]} (--strict)"]))
    for note in notes:
        print(f"{command}: {note}", file=sys.stderr)
    return made


def words(text: str, flag: str) -> tuple[str, ...]:
    """A command as a shell would take it apart."""
    try:
        found = tuple(shlex.split(text))
    except ValueError as error:
        raise Failure(Exit.USAGE, f"{flag}: {text!r}: {error}") from None
    if not found:
        raise Failure(Exit.USAGE, f'{flag}: expected a command, as in {flag} "python3 train.py"')
    return found


def _content(file: str) -> bytes:
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise Failure(Exit.NO_INPUT, f"{_called(file)}: cannot be read: {error.strerror}") from None


def _called(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _is_job(document: Document) -> bool:
    return (document.value.get("apiVersion"), document.value.get("kind")) == (from_yaml.API, from_yaml.KIND)


def _no_job(given: Sequence[Document]) -> str:
    """What is there in the place of a job."""
    there = [f"{_field(document.value, 'kind')} of {_field(document.value, 'apiVersion')}" for document in given]
    return f"expected a {from_yaml.KIND} of {from_yaml.API}, found {', '.join(there) or 'nothing'}"


def _field(value: Json, name: str) -> str:
    return str(value.get(name) or f"no {name}")


def _named(found: Sequence[Note], document: Document, jobs: Sequence[Document]) -> list[Note]:
    """Of several jobs each is told apart by its name."""
    if len(jobs) == 1:
        return list(found)
    metadata = document.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return [Note(f"{name or f'document {document.number}'}: {note.path}", note.reason) for note in found]
