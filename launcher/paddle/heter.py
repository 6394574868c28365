"""Heterogeneous workers of Paddle 2.6 and 3.0: the variables of each role, and the process of a heter worker.

A net is cut into stages. Trainers compute stage 1, and heter workers compute the stages from 2. docs/heter.md lists the
variables, as tested with the real packages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.base.host import host_port
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import HETER, Member, Process

Stages = tuple[tuple[str, ...], ...]  # the endpoints of the heter workers of each stage, those of stage 2 first

FIRST_STAGE = 2  # of a heter worker


def stages(config: JobConfig, members: Sequence[Member], unknown: str) -> Stages:
    """Return the endpoints of all heter workers. Raises Failure if a stage has no worker.

    members: all members, or none if they are not known yet: then the endpoint is that of the host `unknown`
    """
    if not config.shape.heters:
        return ()
    if not members:
        return ((host_port(unknown, config.port),),)
    found: dict[int, list[str]] = {}
    for member in members:
        if member.role == HETER:
            found.setdefault(stage_of(config, member), []).append(host_port(member.training_address, config.port))
    last = max(found)
    for stage in range(FIRST_STAGE, FIRST_STAGE + len(found)):
        if stage not in found:
            raise Failure(
                Exit.CONFIG,
                f"LAUNCHER_STAGE: stage {last} has a heter worker, but stage {stage} has none: expected heter workers "
                f"for each stage from {FIRST_STAGE} to {last}",
            )
    return tuple(tuple(found[stage]) for stage in sorted(found))


def stage_of(config: JobConfig, member: Member) -> int:
    """Return the stage that a heter worker has sent at its join. Before the join, return what this pod expects."""
    return member.stage or config.stage(config.shape.number(member.rank or 0))


def variables(workers: Stages, trainers: str) -> dict[str, str]:
    """Return the variables that all roles get. Empty in a job without heter workers.

    trainers: how many trainers there are, as text
    """
    if not workers:
        return {}
    return {
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": ",".join(endpoint for stage in workers for endpoint in stage),
        "PADDLE_STAGE_TRAINERS_NUM": f"[{', '.join([trainers, *(str(len(stage)) for stage in workers)])}]",
        "STAGE_NUM": str(len(workers) + 1),
    }


def of_trainer(workers: Stages) -> dict[str, str]:
    """Return the variables that only trainers get. Empty in a job without heter workers."""
    return _neighbours(1, (), workers[0]) if workers else {}


def process(
    config: JobConfig,
    command: Sequence[str],
    given: Mapping[str, str],
    workers: Stages,
    trainers: Sequence[str],
    own_host: str,
    own_stage: int,
) -> Process:
    """Return the heter worker of this member.

    given: the variables that it has in common with the other roles
    trainers: the endpoints of all trainers
    """
    before = trainers if own_stage == FIRST_STAGE else workers[own_stage - FIRST_STAGE - 1]
    after = workers[own_stage - FIRST_STAGE + 1 :][:1]
    endpoint = host_port(own_host, config.port)
    device = config.environment.get("HETER_DEVICE_TYPE") or "cpu"
    own = {
        "TRAINING_ROLE": "HETER_TRAINER",
        "PADDLE_TRAINING_ROLE": "HETER_TRAINER",
        "PADDLE_PORT": str(config.port),
        "PADDLE_CURRENT_ENDPOINT": endpoint,
        "HETER_DEVICE_TYPE": device,
        **_neighbours(own_stage, before, after[0] if after else ()),
    }
    return Process(
        role=HETER,
        argv=tuple(command),
        env={**config.environment, **given, **own},
        cwd=config.workdir,
        log="heter.log",
        echo=not config.job_folder,  # without a volume there is no log file
        ports=(config.port,),
        may_finish=True,
    )


def _neighbours(stage: int, before: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    return {
        "STAGE_ID": str(stage),
        "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST": ",".join(before),
        "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST": ",".join(after),
    }
