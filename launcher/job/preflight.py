"""What the launcher of a role's pods would say at its start, found out before there are any pods."""

from __future__ import annotations

from collections.abc import Callable

from launcher import config, paddle
from launcher.errors import Failure
from launcher.job.findings import Found
from launcher.job.pod_env import clashes, variables
from launcher.job.spec import JobSpec, RoleSpec


def rehearse_all(gang: JobSpec, found: Found, where: Callable[[RoleSpec], str]) -> None:
    """What each role's launcher would refuse or warn about; `where` is the path of its container's fields."""
    for role in gang.roles:
        path = where(role)
        for number, reason in clashes(gang, role):
            found.note(f"{path}env[{number}]", reason)
        refused, warned = _rehearse(gang, role)
        for reason in refused:
            found.problem(path.rstrip(".") or "env", reason)
        for reason in warned:
            found.note(f"{path}env", reason)


def _rehearse(gang: JobSpec, role: RoleSpec) -> tuple[list[str], list[str]]:
    """What only the cluster knows is left out."""
    told = {entry["name"]: entry["value"] for entry in variables(gang, role) if entry.get("value")}
    try:
        read = config.read(told | {"JOB_COMPLETION_INDEX": "0"}, {}, check_here=False)
        paddle.plan(read, (), role.command, None, None)
    except Failure as failure:
        return failure.message.splitlines(), []
    return [], list(read.warnings)
