"""Paddle 2.x and 3.x: servers and trainers run the same Python program, configured by environment variables.

docs/paddle.md lists which version of Paddle reads which variable, as tested with the real packages.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.base.host import host_port
from launcher.base.passes import named_paths, pass_folder
from launcher.base.shares import share
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import (
    BOTH,
    FIRST,
    HETER,
    PSERVER,
    TRAINS,
    Member,
    Plan,
    Process,
    Roster,
    Saves,
    Shape,
    Start,
    member_name,
)
from launcher.paddle import elastic, heter

_UNKNOWN = "<known once the gang is complete>"
_LAUNCHERS = ("paddle.distributed.launch", "paddle.distributed.fleet.launch", "fleetrun")
_WITH_SERVERS = re.compile(r" --(?:server_num|servers|trainer_num|trainers|run_mode[= ]ps)\b")
_ASK_FOR_SERVERS = (
    *("PADDLE_RUN_MODE", "PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM"),
    *("PADDLE_SERVERS_ENDPOINTS", "PADDLE_TRAINERS_ENDPOINTS"),
)
_WORKER_FAILED = re.compile(r"^Container rank \d+ status failed .* code (-?\d+)")
_WORKER_ENVIRONMENT = "env {'"  # paddle.distributed.launch of 2.6 prints this after the line of the failed worker
_LOOPBACK = "lo"  # the device if all trainers are on one node: each node has this device
PROXIES = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True)
class Layout:
    """All endpoints in rank order, with the trainers of one member next to each other."""

    shape: Shape
    servers: tuple[str, ...]
    heters: heter.Stages
    trainers: tuple[str, ...]
    trainer_hosts: tuple[str, ...]
    all_hosts: tuple[str, ...]
    number: int | None  # this member's number within its role, 0 for the first
    own_host: str
    own_stage: int

    @property
    def count(self) -> str:
        """The number of trainers, as text for a variable."""
        return _UNKNOWN if self.trainers == (_UNKNOWN,) else str(len(self.trainers))


def plan(
    config: JobConfig,
    command: Sequence[str],
    mode: str,
    roster: Roster | None,
    rank: int | None,
    start: Start = FIRST,
    shards: int = 0,
) -> Plan:
    """Return the plan of one member. No process starts before the gang is complete: all processes need the roster.

    shards: in an elastic job, how many shards the volume has
    """
    _refuse_two_launchers(config, command, mode)
    layout = _layout(config, mode, roster, rank)
    common = {**_common(config, layout), **_resume(config, start)}
    if roster:
        common |= elastic.sizes(config, layout.shape.trainers, start)
    server = []
    if mode == "ps" and _serves(config, layout):
        server = [_server(config, command, {**common, **_ps(config, layout)}, layout)]
    if config.role == HETER:
        shared = {**common, **_ps(config, layout)}
        places = layout.trainers, layout.own_host, layout.own_stage
        server = [heter.process(config, command, shared, layout.heters, *places)]
    of_mode = {"ps": _ps, "collective": _collective, "single": _single}[mode]
    variables = {**common, **of_mode(config, layout)}
    leads = mode == "collective" and rank == 0 and len(layout.trainers) > 1
    trainers = [
        _trainer(
            config,
            command,
            {**variables, **_shards(config, layout, number, shards)},
            layout,
            number,
            leads and number == 0,
        )
        for number in range(config.trainers_per_node if config.role in TRAINS else 0)
    ]
    return Plan(tuple(server), tuple(trainers), shows_passes=False, early=False, leads=leads)


def _shards(config: JobConfig, layout: Layout, number: int, shards: int) -> Mapping[str, str]:
    """Return the variable with the folders of the shards of one trainer. Empty without shards."""
    each = config.trainers_per_node
    if layout.number is None or not shards:
        return {}
    mine = share(shards, layout.shape.trainers * each, layout.number * each + number)
    return elastic.data_folders(config, number, mine)


def saves(config: JobConfig, command: Sequence[str]) -> Saves | None:
    """Return where a program that follows docs/resume.md saves its passes."""
    return Saves(config.output, named=named_paths(command, config.workdir)) if config.job_folder else None


def _resume(config: JobConfig, start: Start) -> dict[str, str]:
    """Return the variables from which a program reads where to resume. Without a pass, LAUNCHER_RESUME_DIR is empty."""
    model = "" if start.resume is None else pass_folder(config.output, start.resume)
    return {"LAUNCHER_GENERATION": str(start.generation), "LAUNCHER_RESUME_DIR": model}


def _serves(config: JobConfig, layout: Layout) -> bool:
    """Return whether this member runs a server. Without roles, the members with the lowest ranks run the servers."""
    if config.role != BOTH:
        return config.role == PSERVER
    return layout.number is None or layout.number < (config.pservers or layout.shape.trainers)


def program_exit_code(code: int, tail: Sequence[str]) -> int:
    """Return a failed worker's exit code from the log of `paddle.distributed.launch`, which exits with another code."""
    for line in reversed(tail):
        if match := _WORKER_FAILED.search(line):
            of_worker = int(match.group(1))
            return of_worker if of_worker > 0 else 128 - of_worker
    return code


def hide_environment(tail: Sequence[str]) -> tuple[str, ...]:
    """Drop lines in which `paddle.distributed.launch` of 2.6 prints all variables of a failed worker."""
    return tuple(line for line in tail if not line.startswith(_WORKER_ENVIRONMENT))


def _refuse_two_launchers(config: JobConfig, command: Sequence[str], mode: str) -> None:
    """Raise Failure if this launcher and Paddle's own launcher would both start servers or all trainers of a node."""
    at = next((at for at, word in enumerate(command) if os.path.basename(word) in _LAUNCHERS), None)
    if at is None:
        return
    its_arguments = itertools.takewhile(lambda word: not word.endswith(".py"), command[at:])
    if mode == "ps" or _WITH_SERVERS.search(" ".join(its_arguments)):
        raise Failure(
            Exit.USAGE,
            f"-- {' '.join(command[: at + 1])}: Paddle's launcher never ends after it has started parameter servers: "
            "expected only the training program and LAUNCHER_MODE=ps, as in `-- python train.py`",
        )
    wrong = [name for name in _ASK_FOR_SERVERS if config.environment.get(name, "collective") not in ("", "collective")]
    if wrong:
        raise Failure(
            Exit.USAGE,
            f"{', '.join(wrong)}: with {'this variable' if len(wrong) == 1 else 'these variables'} {command[at]} "
            f"starts parameter servers, and then never ends: unset {', '.join(wrong)}, or run only the training "
            "program, with LAUNCHER_MODE=ps",
        )
    if (count := config.trainers_per_node) > 1:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_TRAINERS_PER_NODE: {count}: {command[at]} starts the trainers of a node itself: unset the "
            f"variable, and use {command[at]} --nproc_per_node={count}",
        )


def _layout(config: JobConfig, mode: str, roster: Roster | None, rank: int | None) -> Layout:
    """Return the layout, with placeholders for endpoints that are not known yet. All members use the same ports."""
    shape = roster.shape if roster else config.shape
    if mode == "single" or shape.size == 1:
        address = config.training_address
        alone = Member(config.own_name, "", address, address, 0, trainers=config.trainers_per_node)
        roster, rank = Roster((alone,)), 0
        shape = roster.shape
    members = roster.members if roster else ()
    training = [member for member in members if member.role in TRAINS]
    serving = [member for member in members if member.role == PSERVER] or training[: config.pservers or len(training)]
    _check_trainers_per_node(config, training)
    trainers = [
        host_port(member.training_address, _port_of(config, number))
        for member in training
        for number in range(member.trainers)
    ]
    servers = [host_port(member.training_address, config.port) for member in serving]
    return Layout(
        shape=shape,
        servers=(tuple(servers) or (host_port(_UNKNOWN, config.port),)) if mode == "ps" else (),
        heters=heter.stages(config, members, _UNKNOWN),
        trainers=tuple(trainers) or (_UNKNOWN,),
        trainer_hosts=tuple(member.training_address for member in training) or (_UNKNOWN,),
        all_hosts=tuple(member.training_address for member in members) or (_UNKNOWN,),
        number=None if rank is None else shape.number(rank),
        own_host=_UNKNOWN if rank is None or not members else members[rank].training_address,
        own_stage=heter.stage_of(config, members[rank]) if rank is not None and members else heter.FIRST_STAGE,
    )


def _check_trainers_per_node(config: JobConfig, members: Sequence[Member]) -> None:
    """Raise Failure if members run different numbers of trainers: ranks and shards are computed from one number."""
    for member in members:
        if config.role in TRAINS and member.trainers != config.trainers_per_node:
            raise Failure(
                Exit.CONFIG,
                f"LAUNCHER_TRAINERS_PER_NODE: pod {member.pod} ({member_name(member.role, member.rank)}) runs "
                f"{member.trainers} trainers, but this member runs {config.trainers_per_node}: expected the same "
                "number on all nodes",
            )


def _port_of(config: JobConfig, trainer: int) -> int:
    """Return the port of the member's trainer with this number, 0 for the first. The ports follow the gang's port."""
    return config.gang.port + 1 + trainer


def _common(config: JobConfig, layout: Layout) -> dict[str, str]:
    """Return the variables that all processes get."""
    given = config.environment
    variables = {
        "TRAINERS": layout.count,
        "PADDLE_TRAINERS_NUM": layout.count,
        "PADDLE_TRAINERS": ",".join(layout.trainer_hosts),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(layout.trainers),
        "POD_IP": layout.own_host,
        "LAUNCHER_WORKDIR": config.workdir,
        "LAUNCHER_DATA_DIR": config.data_folder(),
        "LAUNCHER_SAVE_DIR": config.output,
        "PYTHONUNBUFFERED": given.get("PYTHONUNBUFFERED", "1"),  # the last output of a dying program must be in its log
    }
    device = config.nic if layout.shape.size > 1 else _LOOPBACK
    variables |= {name: given.get(name) or device for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return variables | {name: _without_proxy(given.get(name), layout) for name in PROXIES}


def _without_proxy(given: str | None, layout: Layout) -> str:
    """Return the value for no_proxy, with all peers added: through a proxy, Paddle's rendezvous hangs."""
    return ",".join(dict.fromkeys([*(given.split(",") if given else []), *layout.all_hosts, "localhost", "127.0.0.1"]))


def _ps(config: JobConfig, layout: Layout) -> dict[str, str]:
    given = config.environment
    gloo = given.get("PADDLE_WITH_GLOO") or "0"
    variables = {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(layout.servers),
        "PADDLE_WITH_GLOO": gloo,
        "FLAGS_enable_pir_api": given.get("FLAGS_enable_pir_api")
        or "0",  # 3.0 supports parameter servers only without PIR
    }
    if gloo != "0":
        http = f"{layout.servers[0].rpartition(':')[0]}:{config.port + 1}"
        variables["PADDLE_GLOO_RENDEZVOUS"] = given.get("PADDLE_GLOO_RENDEZVOUS") or "3"
        variables["PADDLE_GLOO_HTTP_ENDPOINT"] = given.get("PADDLE_GLOO_HTTP_ENDPOINT") or http
    return variables | heter.variables(layout.heters, layout.count)


def _collective(config: JobConfig, layout: Layout) -> dict[str, str]:
    name = config.environment.get("PADDLE_DISTRI_BACKEND") or "gloo"
    backend = {} if config.gpus else {"PADDLE_DISTRI_BACKEND": name}
    return {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_MASTER": layout.trainers[0],
        "PADDLE_NNODES": str(layout.shape.trainers),
        "PADDLE_GLOBAL_SIZE": layout.count,
        "PADDLE_LOCAL_SIZE": str(config.trainers_per_node),
        **backend,
    }


def _single(config: JobConfig, layout: Layout) -> dict[str, str]:
    """Return an empty dict: without variables, Paddle does not look for other trainers."""
    return {}


def _server(config: JobConfig, command: Sequence[str], variables: Mapping[str, str], layout: Layout) -> Process:
    own = {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINER_ID": _rank_text(layout.number),
        "PADDLE_PORT": str(config.port),
        "PADDLE_CURRENT_ENDPOINT": host_port(layout.own_host, config.port),
    }
    waits_for_trainers = variables["PADDLE_WITH_GLOO"] == "2" or variables.get("PADDLE_GLOO_RENDEZVOUS") == "3"
    return Process(
        role="pserver",
        argv=tuple(command),
        env={**config.environment, **variables, **own},
        cwd=config.workdir,
        log="server.log",
        echo=not config.job_folder,  # without a volume there is no log file
        ports=()
        if waits_for_trainers
        else (config.port,),  # the server then listens only after all trainers have registered
        may_finish=True,
    )


def _trainer(
    config: JobConfig,
    command: Sequence[str],
    variables: Mapping[str, str],
    layout: Layout,
    number: int,
    leads: bool,
) -> Process:
    """Return the member's trainer with this number, 0 for the first. If `leads` is true, peers connect to it."""
    rank = None if layout.number is None else layout.number * config.trainers_per_node + number
    port = _port_of(config, number)
    own = {
        "TRAINER_ID": _rank_text(rank),
        "PADDLE_TRAINER_ID": _rank_text(rank),
        "PADDLE_GLOBAL_RANK": _rank_text(rank),
        "PADDLE_LOCAL_RANK": str(number),
        "PADDLE_RANK_IN_NODE": str(number),
        "PADDLE_PORT": str(port),
        "PADDLE_CURRENT_ENDPOINT": host_port(layout.own_host, port),
        "LAUNCHER_DATA_DIR": config.data_folder(number),
        **elastic.step_file(config, number),
    }
    own |= heter.of_trainer(layout.heters)
    if config.gpus:
        own["FLAGS_selected_gpus"] = str(number % config.gpus)
    return Process(
        role="trainer",
        argv=tuple(command),
        env={**config.environment, **variables, **own},
        cwd=config.workdir,
        log=f"train_{number}.log" if number else "train.log",
        echo=True,
        ports=(port,) if leads else (),
        pass_mark=b"Pass=",
    )


def _rank_text(rank: int | None) -> str:
    return "<rank>" if rank is None else str(rank)
