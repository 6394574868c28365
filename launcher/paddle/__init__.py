"""Plan which processes a member runs, with the flags of Paddle v0 or the variables of Paddle 2.x and 3.x."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import BOTH, FIRST, Plan, Roster, Saves, Start
from launcher.paddle import fleet, v0
from launcher.paddle.advice import advice, reason
from launcher.paddle.numbers import NumberFinder

__all__ = [
    "NumberFinder",
    "advice",
    "hide_environment",
    "mode",
    "overridden_variables",
    "plan",
    "program_exit_code",
    "programs",
    "reason",
    "saves",
    "warnings",
]


def mode(config: JobConfig, command: Sequence[str]) -> str:
    """Return the mode: v0, ps, collective or single.

    The mode is LAUNCHER_MODE if set. Otherwise the mode follows from the command, LAUNCHER_PSERVERS and the number of
    trainers. Raises Failure if these settings contradict each other.
    """
    requested = config.mode
    if not command and config.role != BOTH:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_ROLE: {config.role!r}: without a command after --, the launcher runs Paddle v0, which has no "
            "roles: unset LAUNCHER_ROLE, or pass a command, as in `run -- python train.py`",
        )
    if not command:
        if requested not in (None, "v0"):
            raise Failure(
                Exit.USAGE,
                f"LAUNCHER_MODE: {requested!r}: expected a command after --, as in `run -- python train.py`",
            )
        return "v0"
    if requested == "v0":
        raise Failure(
            Exit.USAGE, f"-- {command[0]}: mode v0 always runs `paddle train`: remove this command or LAUNCHER_MODE=v0"
        )
    if requested == "single" and config.members > 1:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_MODE: 'single': each of the {config.members} trainers would train by itself: expected ps or "
            "collective, or CONF_PADDLE_GRADIENT_NUM=1",
        )
    if requested == "single" and config.trainers_per_node > 1:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_MODE: 'single': each of the {config.trainers_per_node} trainers of the pod would train by "
            "itself: expected collective, or LAUNCHER_TRAINERS_PER_NODE=1",
        )
    if requested == "ps" and config.pservers == 0:
        raise Failure(
            Exit.USAGE, "LAUNCHER_PSERVERS: 0: expected 1 or more in mode ps; if unset, each node runs one pserver"
        )
    if requested:
        return requested
    if config.pservers:
        return "ps"
    return "single" if config.members * config.trainers_per_node == 1 else "collective"


def programs(command: Sequence[str]) -> tuple[str, ...]:
    """Return the programs that the plan starts and that must be installed in the image."""
    if not command:
        return v0.PROGRAMS
    is_relative = "/" in command[0] and not command[0].startswith(
        "/"
    )  # staging may not have copied it to the work directory yet
    return () if is_relative else (command[0],)


def warnings(flags: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return warnings about flags that are valid but may not work as expected."""
    return [] if command else v0.warnings(flags)


def plan(
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    roster: Roster | None,
    rank: int | None,
    start: Start = FIRST,
    shards: int = 0,
) -> Plan:
    """Return the plan of one member. If `roster` is None, values that depend on the peers are placeholders.

    shards: in an elastic job, how many shards the volume has
    """
    flavour = mode(config, command)
    if flavour == "v0":
        return v0.plan(config, flags, roster, rank, start)
    return fleet.plan(config, command, flavour, roster, rank, start, shards)


def saves(config: JobConfig, flags: Sequence[str], command: Sequence[str]) -> Saves | None:
    """Return where passes are saved, or None if the job cannot resume: not all members could read the passes."""
    return v0.saves(config, flags) if mode(config, command) == "v0" else fleet.saves(config, command)


def passes(config: JobConfig, flags: Sequence[str], command: Sequence[str]) -> int | None:
    """Return how many passes the job has, counted from pass 0, or None if only the training program knows it."""
    saved = saves(config, flags, command)
    return saved.first + saved.wanted if saved and saved.wanted is not None else None


def overridden_variables(config: JobConfig, plan: Plan) -> list[str]:
    """Describe each variable that the user has set and the plan replaces."""
    overridden: dict[str, str] = {}
    for process in (*plan.servers, *plan.trainers):
        for name, value in process.env.items():
            given = config.environment.get(name)
            if given not in (None, "", value) and name not in fleet.PROXIES:
                overridden.setdefault(name, f"{name}: {given!r} is replaced by {value!r} for the {process.role}")
    return list(overridden.values())


def program_exit_code(code: int, tail: Sequence[str]) -> int:
    """Return the exit code of the user's program, even if Paddle's own launcher has started it."""
    return fleet.program_exit_code(code, tail)


def hide_environment(tail: Sequence[str]) -> tuple[str, ...]:
    """Return the lines without lines that show environment variables, which may contain secrets."""
    return fleet.hide_environment(tail)
