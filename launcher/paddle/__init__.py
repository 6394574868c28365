"""What a member runs: the only room that knows Paddle's flags and variables. A flavour adds one file and one line."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config import JobConfig
from launcher.model import Plan, Roster
from launcher.paddle import command as command_plan
from launcher.paddle import v0


def programs(command: Sequence[str]) -> tuple[str, ...]:
    """The programs that the plan starts, to be there before anything else is done."""
    if not command:
        return v0.PROGRAMS
    staged = "/" in command[0] and not command[0].startswith("/")  # in the work directory, perhaps not copied yet
    return () if staged else (command[0],)


def warnings(flags: Sequence[str], command: Sequence[str]) -> list[str]:
    """What the user should know of a plan that is otherwise right."""
    return [] if command else v0.warnings(flags)


def plan(
    config: JobConfig, flags: Sequence[str], command: Sequence[str], roster: Roster | None, rank: int | None
) -> Plan:
    """The plan of one member. Without a roster its servers are final already, and its trainers have placeholders."""
    if command:
        return command_plan.plan(config, command, rank)
    return v0.plan(config, flags, roster, rank)
