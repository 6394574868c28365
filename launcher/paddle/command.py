"""A command of the user's own in the place of `paddle train`: one trainer a member, without servers."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config import JobConfig
from launcher.model import Plan, Process


def plan(config: JobConfig, command: Sequence[str], rank: int | None) -> Plan:
    """The command as it is, told its rank and N by the variables that the seeds' programs read."""
    told = {"TRAINER_ID": "<rank>" if rank is None else str(rank), "TRAINERS": str(config.size)}
    trainer = Process(
        role="trainer",
        argv=tuple(command),
        env={**config.environment, **told},
        cwd=config.workdir,
        log="train.log",
        echo=True,
    )
    return Plan(servers=(), trainers=(trainer,))
