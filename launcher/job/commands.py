"""The commands for jobs: render, submit, list, status, logs, scale, delete."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from launcher.base.table import format_table
from launcher.errors import Exit, Failure
from launcher.job import render as rendering
from launcher.job.from_yaml import RenderOptions
from launcher.job.image_commands import ImageCommands
from launcher.job.spec import INJECT_IMAGE, ON_COMPLETION, JobSpec, Json

if TYPE_CHECKING:
    from launcher.base.kube import KubeClient
    from launcher.job.state import MemberState
    from launcher.job.watch import ClusterSource

_REPLACED = "this job was deleted already, and what now has its name is another job's"
_COLUMNS = ("member", "pod", "phase", "since", "exit code", "what")


def render_options(
    image: str | None,
    entrypoint: str | None,
    registry: str | None,
    plain_http: Sequence[str],
    *,
    inject: bool,
    watch: bool = False,
    namespace: str | None = None,
    reads_cluster: bool = False,
) -> RenderOptions:
    """Return the RenderOptions for the flags of `render` and `submit`. Raises Failure if the flags are wrong.

    reads_cluster: whether the command may read imagePullSecrets from the cluster. `namespace`: that of its flag
    """
    if image is not None and not inject:
        raise Failure(
            Exit.USAGE, "--launcher-image: cannot be used with --no-inject, which copies no launcher into the pods"
        )
    command = () if entrypoint is None else rendering.split_command(entrypoint, "--entrypoint")
    hosts = frozenset(host.lower() for host in plain_http)
    connect = (lambda of_file: _connect(namespace or of_file)) if reads_cluster else None
    images = ImageCommands(command, registry, hosts, connect)
    return RenderOptions(image or INJECT_IMAGE if inject else None, images, until_end=watch)


def _connect(namespace: str | None) -> KubeClient:
    from launcher.job.access import connect

    return connect(namespace)


def render(file: str, options: RenderOptions, *, strict: bool) -> str:
    """Convert each PaddleJob in the file to Kubernetes objects, and return all objects as YAML."""
    return rendering.render(file, options, strict=strict)


def submit(file: str, options: RenderOptions, namespace: str | None, *, strict: bool, watch: bool) -> int:
    """Create in the cluster all objects that the file describes. If `watch` is true, wait until the job ends.

    Return the exit code of the command.
    """
    parts = rendering.read_file("submit", file, options, strict=strict)
    jobs = [job_spec for _, job_spec in parts if job_spec is not None]
    if len(jobs) != 1:
        raise Failure(Exit.USAGE, f"{file}: has {len(jobs)} jobs: expected one job: put each job into its own file")
    beside = [document.value for document, job_spec in parts if job_spec is None]
    from launcher.job.access import connect
    from launcher.job.submit import create

    job = _in_namespace(jobs[0], namespace)
    client = connect(job.namespace)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C makes `create` delete what it has created
    try:
        created = create(client, _in_namespace(job, client.namespace), beside)
    except KeyboardInterrupt:
        sys.stderr.write(f"submit: {job.name}: interrupted: all created objects are deleted\n")
        return 128 + signal.SIGINT
    where = f"--namespace {client.namespace} {job.name}"
    of = f", of {job.least_pods} to {job.most_pods}" if job.sizes else ""
    print(f"submitted {job.name} to namespace {client.namespace}: {job.pod_count} pods{of}", flush=True)
    if not watch:
        print(f"paddle-launcher status {where}; paddle-launcher logs --follow {where}", flush=True)
        return Exit.COMPLETE
    return _watch(client, job, created, where)


def _watch(client: KubeClient, job: JobSpec, created: Sequence[Json], where: str) -> int:
    """Show the job until it ends, and delete it then if its file says so. Return the exit code of the job."""
    from launcher.job.submit import delete_created
    from launcher.job.watch import ClusterSource
    from launcher.live.show import show
    from launcher.live.signals import Interrupted, ending_signals

    code: int | None = None
    try:
        with ending_signals():
            code = show(ClusterSource(client, job.name), sys.stderr)
            if job.deleted and (job.deleted == ON_COMPLETION) == (code == Exit.COMPLETE):
                if delete_created(client, job.name, created):
                    sys.stderr.write(f"submit: {job.name}: deleted, with its pods and logs (cleanPodPolicy)\n")
                else:
                    sys.stderr.write(f"submit: {job.name} is not deleted (cleanPodPolicy): {_REPLACED}\n")
    except Interrupted as interrupted:
        if code is None:
            kept = f" It will not be deleted at its end (cleanPodPolicy: {job.deleted})" if job.deleted else ""
            sys.stderr.write(
                f"submit: {job.name} continues, but is no longer watched: "
                f"paddle-launcher status {where}; paddle-launcher delete {where}{kept}\n"
            )
        elif job.deleted:
            sys.stderr.write(
                f"submit: {job.name}: interrupted while deleting (cleanPodPolicy): paddle-launcher delete {where}\n"
            )
        return interrupted.exit_code if code is None else code
    except Failure as failure:
        if code is None:
            raise
        sys.stderr.write(f"submit: {job.name} cannot be deleted (cleanPodPolicy): {failure}\n")
    return code


def status(job: str, namespace: str | None, *, as_json: bool) -> str:
    """Return the state of a job in the cluster, with one line per member."""
    from launcher.job.access import connect
    from launcher.job.lookup import read_state

    state = read_state(connect(namespace), job)
    if as_json:
        return json.dumps(asdict(state), indent=1)
    rows = [
        (member.name, member.pod, member.phase, member.since, member.exit_code, _without_cause(member, state.cause))
        for member in state.members
    ]
    ended = f", exit code {state.exit_code}" if state.exit_code else ""
    cause = f": {state.cause}" if state.cause else ""
    return f"{job}: {state.phase}{ended}{cause}\n\n{format_table([_COLUMNS, *rows])}"


def _without_cause(member: MemberState, cause: str) -> str:
    """Return what a member says, but the cause and the exit code only once, since both are beside it."""
    what = member.what.removeprefix(f"exit code {member.exit_code}: ")
    if not cause or cause not in what:
        return what
    return what.replace(cause, "", 1).removesuffix("; first cause: ").strip(" :;") or "as above"


def list_jobs(namespace: str | None, *, everywhere: bool, output: str) -> str:
    """Return a table of all jobs, or JSON if `output` is json. Return "" if there is no job."""
    from launcher.job.access import connect
    from launcher.job.listing import as_fields
    from launcher.job.listing import list_jobs as read
    from launcher.job.listing_table import table

    client = connect(namespace)
    jobs = read(client, everywhere=everywhere)
    if output == "json":
        return json.dumps({"items": [as_fields(job) for job in jobs]}, indent=1)
    if not jobs:
        where = "" if everywhere else f" in {client.namespace} namespace"
        sys.stderr.write(f"No jobs found{where}.\n")
        return ""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return table(jobs, everywhere=everywhere, wide=output == "wide", width=width)


def watch(job: str, namespace: str | None) -> ClusterSource:
    """Return the views of a job in the cluster."""
    from launcher.job.access import connect
    from launcher.job.watch import ClusterSource

    return ClusterSource(connect(namespace), job)


def logs(job: str, rank: int, namespace: str | None, *, role: str, follow: bool) -> Iterator[str]:
    """Yield the lines that one member has printed."""
    from launcher.job.access import connect
    from launcher.job.logs import read_log

    return read_log(connect(namespace), job, rank, role=role, follow=follow)


def why(job: str, namespace: str | None) -> str:
    """Return what the processes of a job do, or what the job waits for."""
    from launcher.job.access import connect
    from launcher.job.why import explain

    return explain(connect(namespace), job)


def scale(job: str, namespace: str | None, count: int) -> str:
    """Change the number of pods of an elastic job, and return what will happen."""
    from launcher.job.access import connect
    from launcher.job.scale import scale as scale_job

    return scale_job(connect(namespace), job, count)


def delete(job: str, namespace: str | None) -> str:
    """Delete a job with all its objects."""
    from launcher.job.access import connect
    from launcher.job.submit import delete as delete_job

    delete_job(connect(namespace), job)
    return f"deleted {job}"


def _in_namespace(job: JobSpec, namespace: str | None) -> JobSpec:
    """Return the job with this namespace. Raises Failure if the file has another namespace."""
    if namespace and job.namespace and namespace != job.namespace:
        raise Failure(
            Exit.USAGE,
            f"--namespace: {namespace!r}: the file has namespace {job.namespace!r}: remove this flag, or "
            "metadata.namespace from the file",
        )
    return job if job.namespace else replace(job, namespace=namespace)
