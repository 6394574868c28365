"""The command-line face of jobs: render, submit, status, logs, delete."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

from launcher.arguments import namespace, no_flags, take, take_value
from launcher.base.table import table
from launcher.errors import Exit, Failure
from launcher.job import render as rendering
from launcher.job.from_yaml import Asked
from launcher.job.spec import INJECTED, JobSpec
from launcher.model import PSERVER, TRAINER

_COLUMNS = ("member", "pod", "phase", "since", "exit code", "what")


def render(arguments: list[str]) -> str:
    """A PaddleJob as plain manifests."""
    strict, asked = take(arguments, "--strict"), _asked(arguments)
    return rendering.render(_file("render", arguments), asked, strict=strict)


def submit(arguments: list[str]) -> int:
    """The same objects, created in the cluster; with --watch to the job's end."""
    watch, strict, given = take(arguments, "--watch"), take(arguments, "--strict"), namespace(arguments)
    asked = _asked(arguments)
    file = _file("submit", arguments)
    parts = rendering.read("submit", file, asked, strict=strict)
    gangs = [gang for _, gang in parts if gang is not None]
    if len(gangs) != 1:
        raise Failure(Exit.USAGE, f"{file}: has {len(gangs)} jobs: expected one: submit them one by one")
    from launcher.job.access import Access
    from launcher.job.submit import create

    gang = _placed(gangs[0], given)
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


def status(job: str, given: str | None, *, as_json: bool) -> str:
    """How the cluster says that a job is: a line a member."""
    from launcher.job.access import Access
    from launcher.job.state import look

    state = look(Access(given), job)
    if as_json:
        return json.dumps(asdict(state), indent=1)
    rows = [
        (member.name, member.pod, member.phase, member.since, member.exit_code, member.what) for member in state.members
    ]
    ended = f", exit code {state.exit_code}" if state.exit_code else ""
    cause = f": {state.cause}" if state.cause else ""
    return f"{job}: {state.phase}{ended}{cause}\n\n{table([_COLUMNS, *rows])}"


def logs(arguments: list[str]) -> Iterator[str]:
    """Lines of one member."""
    follow = take(arguments, "--follow") or take(arguments, "-f")
    role, given = take_value(arguments, "--role") or TRAINER, namespace(arguments)
    if role not in (TRAINER, PSERVER):
        raise Failure(Exit.USAGE, f"--role: {role!r}: expected {TRAINER} or {PSERVER}")
    no_flags("logs", arguments)
    job, *rest = arguments or [""]
    rank = rest[0] if rest else "0"
    if not job or len(rest) > 1 or not rank.isdecimal():
        raise Failure(Exit.USAGE, f"logs: {' '.join(arguments) or 'nothing'}: expected a job, and the rank of a member")
    from launcher.job.access import Access
    from launcher.job.logs import lines

    return lines(Access(given), job, int(rank), role=role, follow=follow)


def delete(arguments: list[str]) -> str:
    """A job with all that belongs to it."""
    given = namespace(arguments)
    no_flags("delete", arguments)
    if len(arguments) != 1:
        raise Failure(Exit.USAGE, f"delete: {' '.join(arguments) or 'nothing'}: expected one job")
    from launcher.job.access import Access
    from launcher.job.submit import delete as delete_job

    delete_job(Access(given), arguments[0])
    return f"deleted {arguments[0]}"


def _asked(arguments: list[str]) -> Asked:
    as_it_is = take(arguments, "--no-inject")
    image, entrypoint = take_value(arguments, "--launcher-image"), take_value(arguments, "--entrypoint")
    if as_it_is and image is not None:
        raise Failure(
            Exit.USAGE, "--launcher-image: does not go with --no-inject, by which no launcher is brought along"
        )
    words = () if entrypoint is None else rendering.words(entrypoint, "--entrypoint")
    return Asked(None if as_it_is else image or INJECTED, words)


def _file(command: str, arguments: list[str]) -> str:
    no_flags(command, arguments, but=rendering.STANDARD_INPUT)
    if len(arguments) != 1:
        raise Failure(
            Exit.USAGE, f"{command}: {' '.join(arguments) or 'nothing'}: expected one file, or - for standard input"
        )
    return arguments[0]


def _placed(gang: JobSpec, given: str | None) -> JobSpec:
    """In a namespace; a job that names another one is not moved."""
    if given and gang.namespace and given != gang.namespace:
        raise Failure(Exit.USAGE, f"--namespace: {given!r}: the file says {gang.namespace!r}: leave one of them out")
    return gang if gang.namespace else replace(gang, namespace=given)
