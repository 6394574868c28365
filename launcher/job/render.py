"""`render`: a PaddleJob as plain manifests on standard output; what cannot be honoured on standard error."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from launcher.errors import Exit, Failure
from launcher.job import documents, operator
from launcher.job.documents import Document
from launcher.job.fields import Found, Note
from launcher.job.gang import Json
from launcher.job.objects import objects

STANDARD_INPUT = "-"


def render(file: str, asked: operator.Asked, *, strict: bool) -> str:
    """The manifests of a file. Nothing is rendered when anything is wrong in it, and all of that is told."""
    given = documents.read(_content(file), _called(file))
    jobs = [document for document in given if _is_job(document)]
    if not jobs:
        raise Failure(Exit.CONFIG, f"{_called(file)}: {_no_job(given)}")
    others = [document.value for document in given if not _is_job(document)]
    parts: list[str] = []
    problems: list[Note] = []
    notes: list[Note] = []
    for document in given:
        if not _is_job(document):
            parts.append(document.text or documents.written(document.value))
            continue
        found = Found()
        gang = operator.gang(document.value, others, asked, found)
        problems += _named(found.problems, document, jobs)
        notes += _named(found.notes, document, jobs)
        parts += [documents.written(made) for made in objects(gang)] if gang else []
    if problems:
        raise Failure(Exit.CONFIG, "\n".join(map(str, problems)))
    if notes and strict:
        raise Failure(Exit.CONFIG, "\n".join([*map(str, notes), "nothing was rendered (--strict)"]))
    for note in notes:
        print(f"render: {note}", file=sys.stderr)
    return "---\n".join(parts).rstrip("\n")


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
    return (document.value.get("apiVersion"), document.value.get("kind")) == (operator.API, operator.KIND)


def _no_job(given: Sequence[Document]) -> str:
    """What is there in the place of a job."""
    there = [f"{_field(document.value, 'kind')} of {_field(document.value, 'apiVersion')}" for document in given]
    return f"expected a {operator.KIND} of {operator.API}, found {', '.join(there) or 'nothing'}"


def _field(value: Json, name: str) -> str:
    return str(value.get(name) or f"no {name}")


def _named(found: Sequence[Note], document: Document, jobs: Sequence[Document]) -> list[Note]:
    """Of several jobs each is told apart by its name."""
    if len(jobs) == 1:
        return list(found)
    metadata = document.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return [Note(f"{name or f'document {document.number}'}: {note.path}", note.reason) for note in found]
