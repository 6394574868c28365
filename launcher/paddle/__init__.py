"""What a member runs: the only room that knows Paddle's flags and variables. A flavour adds one file and one line."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import BOTH, FIRST, Plan, Roster, Saves, Start
from launcher.paddle import fleet, v0
from launcher.paddle.advice import advice

__all__ = ["advice", "mode", "plan", "programs", "replaced", "saves", "true_code", "warnings", "without_environment"]


def mode(config: JobConfig, command: Sequence[str]) -> str:
    """v0, ps, collective or single: as told, else what the command and LAUNCHER_PSERVERS imply."""
    told = config.mode
    if not command and config.role != BOTH:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_ROLE: {config.role!r}: v0 runs a server and a trainer in each pod: expected a command after --, "
            "as in `run -- python train.py`",
        )
    if not command:
        if told not in (None, "v0"):
            raise Failure(
                Exit.USAGE,
                f"LAUNCHER_MODE: {told!r}: expected a command after --, as in `run -- python train.py`",
            )
        return "v0"
    if told == "v0":
        raise Failure(Exit.USAGE, f"-- {command[0]}: v0 runs `paddle train`: leave the command or LAUNCHER_MODE=v0 out")
    if told == "single" and config.members > 1:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_MODE: 'single': each of the {config.members} trainers would train by itself: expected ps or "
            "collective, or CONF_PADDLE_GRADIENT_NUM=1",
        )
    if told == "single" and config.trainers_per_node > 1:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_MODE: 'single': each of the {config.trainers_per_node} trainers of the pod would train by "
            "itself: expected collective, or LAUNCHER_TRAINERS_PER_NODE=1",
        )
    if told == "ps" and config.pservers == 0:
        raise Failure(
            Exit.USAGE, "LAUNCHER_PSERVERS: 0: expected 1 or more in mode ps: leave it out for one beside each trainer"
        )
    if told:
        return told
    if config.pservers:
        return "ps"
    return "single" if config.members * config.trainers_per_node == 1 else "collective"


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
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    roster: Roster | None,
    rank: int | None,
    start: Start = FIRST,
) -> Plan:
    """The plan of one member. Without a roster there are placeholders for what only the peers can tell."""
    flavour = mode(config, command)
    if flavour == "v0":
        return v0.plan(config, flags, roster, rank, start.resume)
    return fleet.plan(config, command, flavour, roster, rank, start)


def saves(config: JobConfig, flags: Sequence[str], command: Sequence[str]) -> Saves | None:
    """Where passes are saved, so that another generation can go on after the last one; None: nobody else sees it."""
    return v0.saves(config, flags) if mode(config, command) == "v0" else fleet.saves(config)


def replaced(config: JobConfig, plan: Plan) -> list[str]:
    """What the user had set and Paddle is told otherwise, in words."""
    found: dict[str, str] = {}
    for process in (*plan.servers, *plan.trainers):
        for name, value in process.env.items():
            had = config.environment.get(name)
            if had not in (None, "", value) and name not in fleet.PROXIES:
                found.setdefault(name, f"{name}: {had!r} is replaced by {value!r} for the {process.role}")
    return list(found.values())


def true_code(code: int, tail: Sequence[str]) -> int:
    """The exit code of the program itself, where another launcher stood between."""
    return fleet.true_code(code, tail)


def without_environment(tail: Sequence[str]) -> tuple[str, ...]:
    """The lines that may be shown to others."""
    return fleet.without_environment(tail)
