"""Read a file with PaddleJobs, for `render` and `submit`, and convert the PaddleJobs to Kubernetes objects."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from launcher.errors import Exit, Failure
from launcher.job import from_yaml, yaml_io
from launcher.job.findings import Finding, Findings
from launcher.job.from_yaml import RenderOptions
from launcher.job.manifests import objects
from launcher.job.spec import INJECT_IMAGE, JobSpec, Json
from launcher.job.yaml_io import Document

STANDARD_INPUT = "-"
_UNPUBLISHED = (
    f"{INJECT_IMAGE}: the pods copy the launcher from this image, which is in no registry: build it from the sources "
    f"of the launcher, with your own name: `docker build -f docker/inject.Dockerfile -t YOUR/inject:1 .`, push it, and "
    "use --launcher-image YOUR/inject:1 (or --no-inject if your images have the launcher)"
)
_DONE = {"render": "rendered", "submit": "submitted"}


def render(file: str, options: RenderOptions, *, strict: bool) -> str:
    """Convert the PaddleJobs in the file to Kubernetes objects. Return these and all other objects, as YAML."""
    texts: list[str] = []
    for document, job_spec in read_file("render", file, options, strict=strict):
        if job_spec is None:
            texts.append(document.text or yaml_io.dump(document.value))
        else:
            texts += map(yaml_io.dump, objects(job_spec))
    return "---\n".join(texts).rstrip("\n")


def read_file(
    command: str, file: str, options: RenderOptions, *, strict: bool
) -> list[tuple[Document, JobSpec | None]]:
    """Return the objects in the file, in file order, with a JobSpec for each PaddleJob.

    command: `render` or `submit`, for messages

    Notes go to standard error. Raises Failure with all problems, and if `strict` is true, with all notes.
    """
    documents = read_documents(file)
    if not has_job(documents):
        raise Failure(Exit.CONFIG, f"{file_name(file)}: {_no_job(documents)}")
    return convert(command, documents, options, strict=strict)


def read_documents(file: str) -> list[Document]:
    """Return the objects in the file. `file`: a path, or STANDARD_INPUT."""
    return yaml_io.read(_content(file), file_name(file))


def has_job(documents: Sequence[Document]) -> bool:
    """Return whether one of the objects is a PaddleJob."""
    return any(map(_is_job, documents))


def convert(
    command: str, documents: Sequence[Document], options: RenderOptions, *, strict: bool
) -> list[tuple[Document, JobSpec | None]]:
    """Return the objects, with a JobSpec for each PaddleJob, as `read_file` does."""
    jobs = [document for document in documents if _is_job(document)]
    others = [document.value for document in documents if not _is_job(document)]
    parts: list[tuple[Document, JobSpec | None]] = []
    problems: list[Finding] = []
    notes: list[Finding] = []
    for document in documents:
        if not _is_job(document):
            parts.append((document, None))
            continue
        findings = Findings()
        parts.append((document, from_yaml.to_job_spec(document.value, others, options, findings)))
        problems += _with_job_name(findings.problems, document, jobs)
        notes += _with_job_name(findings.notes, document, jobs)
    wrong = [*map(str, problems)]
    if command == "submit":
        from launcher.job.submit import problems_beside  # only here: it loads the Kubernetes client

        wrong += problems_beside(others)
    if notes and strict:
        wrong += [*map(str, notes), f"nothing was {_DONE[command]} (--strict)"]
    else:
        for note in notes:
            print(f"{command}: {note}", file=sys.stderr)
    if wrong:
        raise Failure(Exit.CONFIG, "\n".join(wrong))
    if options.launcher_image == INJECT_IMAGE:
        print(f"{command}: {_UNPUBLISHED}", file=sys.stderr)
    return parts


def split_command(text: str, flag: str) -> tuple[str, ...]:
    """Split a command line as a shell does. Raises Failure, whose message begins with `flag`."""
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise Failure(Exit.USAGE, f"{flag}: {text!r}: {error}") from None
    if not command:
        raise Failure(Exit.USAGE, f'{flag}: expected a command, as in {flag} "python3 train.py"')
    return command


def _content(file: str) -> bytes:
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise Failure(Exit.NO_INPUT, f"{file_name(file)}: cannot be read: {error.strerror}") from None


def file_name(file: str) -> str:
    """Return the name of the file, for messages."""
    return "standard input" if file == STANDARD_INPUT else file


def _is_job(document: Document) -> bool:
    return (document.value.get("apiVersion"), document.value.get("kind")) == (from_yaml.API, from_yaml.KIND)


def _no_job(documents: Sequence[Document]) -> str:
    found = [f"{_field(document.value, 'kind')} of {_field(document.value, 'apiVersion')}" for document in documents]
    return f"expected a {from_yaml.KIND} of {from_yaml.API}, found {', '.join(found) or 'nothing'}"


def _field(value: Json, name: str) -> str:
    return str(value.get(name) or f"no {name}")


def _with_job_name(found: Sequence[Finding], document: Document, jobs: Sequence[Document]) -> list[Finding]:
    """Put the job's name before each path if the file has several jobs."""
    if len(jobs) == 1:
        return list(found)
    metadata = document.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    prefix = name or f"document {document.number}"
    return [Finding(f"{prefix}: {finding.path}", finding.reason) for finding in found]
