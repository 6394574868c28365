"""What the launcher of a role's pods would say at its start, found out before there are any pods."""

from __future__ import annotations

from launcher import config, paddle
from launcher.errors import Failure
from launcher.job.env import variables
from launcher.job.gang import Gang, Role


def rehearse(gang: Gang, role: Role) -> tuple[list[str], list[str]]:
    """What it would refuse, and what it would warn about. What only the cluster knows is left out."""
    told = {entry["name"]: entry["value"] for entry in variables(gang, role) if entry.get("value")}
    try:
        read = config.read(told | {"JOB_COMPLETION_INDEX": "0"}, {}, check_here=False)
        paddle.plan(read, (), role.command, None, None)
    except Failure as failure:
        return failure.message.splitlines(), []
    return [], list(read.warnings)
