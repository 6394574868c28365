"""Report, before the pods of a job exist, the problems that the launchers in these pods would report."""

from __future__ import annotations

from collections.abc import Callable

from launcher import config, paddle
from launcher.errors import Failure
from launcher.job.findings import Findings
from launcher.job.pod_env import replaced_variables, variables
from launcher.job.spec import JobSpec, RoleSpec


def check_pods(job_spec: JobSpec, findings: Findings, container_path: Callable[[RoleSpec], str]) -> None:
    """Add a problem for each problem that a role's launcher would report, and a note for each of its warnings.

    container_path: returns the path of a role's main container, or an empty text if fields have no path
    """
    for role_spec in job_spec.roles:
        container = container_path(role_spec)
        env = f"{container}.env" if container else "env"
        for index, reason in replaced_variables(job_spec, role_spec):
            findings.add_note(f"{env}[{index}]", reason)
        problems, warnings = _start(job_spec, role_spec)
        for reason in problems:
            findings.add_problem(container or "env", reason)
        for reason in warnings:
            findings.add_note(env, reason)


def _start(job_spec: JobSpec, role_spec: RoleSpec) -> tuple[list[str], list[str]]:
    """Return the problems and warnings of a launcher in the role's first pod. Values from the cluster are unset."""
    values = {entry["name"]: entry["value"] for entry in variables(job_spec, role_spec) if entry.get("value")}
    try:
        job_config = config.read(values | {"JOB_COMPLETION_INDEX": "0"}, {}, check_here=False)
        paddle.plan(job_config, (), role_spec.command, None, None)
    except Failure as failure:
        return failure.message.splitlines(), []
    return [], list(job_config.warnings)
