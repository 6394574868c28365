"""The command-line face of jobs: render, submit, status, logs, delete."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

from launcher.base.table import table
from launcher.errors import Exit, Failure
from launcher.job import render as rendering
from launcher.job.from_yaml import Asked
from launcher.job.spec import INJECTED, JobSpec

_COLUMNS = ("member", "pod", "phase", "since", "exit code", "what")


def asked(image: str | None, entrypoint: str | None, *, inject: bool) -> Asked:
    """Return how pods get a launcher and a command, as flags of `render` and `submit` say it."""
    if image is not None and not inject:
        raise Failure(
            Exit.USAGE, "--launcher-image: does not go with --no-inject, by which no launcher is brought along"
        )
    words = () if entrypoint is None else rendering.words(entrypoint, "--entrypoint")
    return Asked(image or INJECTED if inject else None, words)


def render(file: str, asked: Asked, *, strict: bool) -> str:
    """Return a PaddleJob as plain manifests."""
    return rendering.render(file, asked, strict=strict)


def submit(file: str, asked: Asked, namespace: str | None, *, strict: bool, watch: bool) -> int:
    """Create the same objects in the cluster; with `watch` wait for the job's end. Return an exit code."""
    parts = rendering.read("submit", file, asked, strict=strict)
    gangs = [gang for _, gang in parts if gang is not None]
    if len(gangs) != 1:
        raise Failure(Exit.USAGE, f"{file}: has {len(gangs)} jobs: expected one: submit them one by one")
    from launcher.job.access import Access
    from launcher.job.submit import create

    gang = _placed(gangs[0], namespace)
    access = Access(gang.namespace)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what was created so far is taken back
    try:
        create(access, _placed(gang, access.namespace), [document.value for document, other in parts if other is None])
    except KeyboardInterrupt:
        sys.stderr.write(f"submit: {gang.name}: interrupted, and what was created is taken back\n")
        return 128 + signal.SIGINT
    where = f"--namespace {access.namespace} {gang.name}"
    print(f"submitted {gang.name} to namespace {access.namespace}: {gang.members} pods", flush=True)
    if not watch:
        print(f"paddle-launcher status {where}; paddle-launcher logs --follow {where}", flush=True)
        return Exit.COMPLETE
    from launcher.job.watch import wait

    try:
        return wait(access, gang.name, timeout=None, quiet=False)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"not watched any more; {gang.name} goes on: paddle-launcher status {where}; ... delete {where}\n"
        )
        return 128 + signal.SIGINT


def status(job: str, namespace: str | None, *, as_json: bool) -> str:
    """How the cluster says that a job is: a line a member."""
    from launcher.job.access import Access
    from launcher.job.state import look

    state = look(Access(namespace), job)
    if as_json:
        return json.dumps(asdict(state), indent=1)
    rows = [
        (member.name, member.pod, member.phase, member.since, member.exit_code, member.what) for member in state.members
    ]
    ended = f", exit code {state.exit_code}" if state.exit_code else ""
    cause = f": {state.cause}" if state.cause else ""
    return f"{job}: {state.phase}{ended}{cause}\n\n{table([_COLUMNS, *rows])}"


def logs(job: str, rank: int, namespace: str | None, *, role: str, follow: bool) -> Iterator[str]:
    """Yield the lines of one member."""
    from launcher.job.access import Access
    from launcher.job.logs import lines

    return lines(Access(namespace), job, rank, role=role, follow=follow)


def delete(job: str, namespace: str | None) -> str:
    """Delete a job with all that belongs to it."""
    from launcher.job.access import Access
    from launcher.job.submit import delete as delete_job

    delete_job(Access(namespace), job)
    return f"deleted {job}"


def _placed(gang: JobSpec, namespace: str | None) -> JobSpec:
    """In a namespace; a job that names another one is not moved."""
    if namespace and gang.namespace and namespace != gang.namespace:
        raise Failure(
            Exit.USAGE, f"--namespace: {namespace!r}: the file says {gang.namespace!r}: leave one of them out"
        )
    return gang if gang.namespace else replace(gang, namespace=namespace)
