"""Today's Paddle: one Python program for servers and trainers alike, told by variables which of them it is.

Which version reads which variable, and what happens without it, was tried on real wheels: docs/paddle.md has the table.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.base.host import host_port
from launcher.base.passes import pass_folder
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import BOTH, FIRST, PSERVER, Member, Plan, Process, Roster, Saves, Start, member_name

_UNKNOWN = "<known once the gang is complete>"
_LAUNCHERS = ("paddle.distributed.launch", "paddle.distributed.fleet.launch", "fleetrun")
_WITH_SERVERS = re.compile(r" --(?:server_num|servers|trainer_num|trainers|run_mode[= ]ps)\b")
_ASK_FOR_SERVERS = (
    *("PADDLE_RUN_MODE", "PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM"),
    *("PADDLE_SERVERS_ENDPOINTS", "PADDLE_TRAINERS_ENDPOINTS"),
)
_LAUNCHED_FAILED = re.compile(r"^Container rank \d+ status failed .* code (-?\d+)")
_LAUNCHED_ENVIRONMENT = "env {'"  # how 2.6 goes on after that line
_LOOPBACK = "lo"  # trainers of one node meet there, whatever devices it has
PROXIES = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True)
class Layout:
    """Who is where: endpoints in rank order. A member's trainers follow each other."""

    servers: tuple[str, ...]
    trainers: tuple[str, ...]
    hosts: tuple[str, ...]  # of the trainers
    everywhere: tuple[str, ...]  # the hosts of all
    own: int | None  # the number of this member, within its role
    own_host: str

    @property
    def count(self) -> str:
        """How many trainers there are, as it is told."""
        return _UNKNOWN if self.trainers == (_UNKNOWN,) else str(len(self.trainers))


def plan(
    config: JobConfig,
    command: Sequence[str],
    mode: str,
    roster: Roster | None,
    rank: int | None,
    start: Start = FIRST,
) -> Plan:
    """The processes of one member. They depend on the roster, so that none is started before the gang is complete."""
    _refuse_two_launchers(config, command, mode)
    layout = _layout(config, mode, roster, rank)
    common = {**_common(config, layout), **_resume(config, start)}
    server = []
    if mode == "ps" and _serves(config, layout):
        server = [_server(config, command, {**common, **_ps(config, layout)}, layout)]
    kind = {"ps": _ps, "collective": _collective, "single": _single}[mode]
    variables = {**common, **kind(config, layout)}
    leads = mode == "collective" and rank == 0 and len(layout.trainers) > 1
    trainers = [
        _trainer(config, command, variables, layout, number, leads and number == 0)
        for number in range(0 if config.role == PSERVER else config.trainers_per_node)
    ]
    return Plan(tuple(server), tuple(trainers), shows_passes=False, early=False, leads=leads)


def saves(config: JobConfig) -> Saves | None:
    """Programs that keep to docs/resume.md save their passes there; what others do is theirs."""
    return Saves(config.output) if config.job_folder else None


def _resume(config: JobConfig, start: Start) -> dict[str, str]:
    """Where the program goes on: empty at the beginning."""
    model = "" if start.resume is None else pass_folder(config.output, start.resume)
    return {"LAUNCHER_GENERATION": str(start.generation), "LAUNCHER_RESUME_DIR": model}


def _serves(config: JobConfig, layout: Layout) -> bool:
    """Whether there is a server here: where each member does both, on the first of them."""
    if config.role != BOTH:
        return config.role == PSERVER
    return layout.own is None or layout.own < (config.pservers or config.shape.trainers)


def true_code(code: int, tail: Sequence[str]) -> int:
    """Behind `paddle.distributed.launch`, which ends with the code of whichever worker it saw last: what it logged."""
    for line in reversed(tail):
        if found := _LAUNCHED_FAILED.search(line):
            own = int(found.group(1))
            return own if own > 0 else 128 - own
    return code


def without_environment(tail: Sequence[str]) -> tuple[str, ...]:
    """Lines to show to others: `paddle.distributed.launch` of 2.6 prints a failed worker's variables, secrets too."""
    return tuple(line for line in tail if not line.startswith(_LAUNCHED_ENVIRONMENT))


def _refuse_two_launchers(config: JobConfig, command: Sequence[str], mode: str) -> None:
    """Paddle's own launcher starts the trainers of a node itself, of which there must be one set."""
    at = next((at for at, word in enumerate(command) if os.path.basename(word) in _LAUNCHERS), None)
    if at is None:
        return
    its_own = itertools.takewhile(lambda word: not word.endswith(".py"), command[at:])
    if mode == "ps" or _WITH_SERVERS.search(" ".join(its_own)):
        raise Failure(
            Exit.USAGE,
            f"-- {' '.join(command[: at + 1])}: with parameter servers it never ends: expected the program itself and "
            "LAUNCHER_MODE=ps, as in `-- python train.py`",
        )
    asked = [name for name in _ASK_FOR_SERVERS if config.environment.get(name, "collective") not in ("", "collective")]
    if asked:
        raise Failure(
            Exit.USAGE,
            f"{', '.join(asked)}: {command[at]} starts parameter servers by this, and never ends then: unset it, or "
            "run the program itself with LAUNCHER_MODE=ps",
        )
    if (count := config.trainers_per_node) > 1:
        raise Failure(
            Exit.USAGE,
            f"LAUNCHER_TRAINERS_PER_NODE: {count}: {command[at]} starts the trainers of a node itself: leave it out, "
            f"and give --nproc_per_node={count} to that",
        )


def _layout(config: JobConfig, mode: str, roster: Roster | None, rank: int | None) -> Layout:
    """Endpoints in rank order. Ports are the same on every member; what is not known yet has placeholders."""
    if mode == "single" or config.members == 1:
        address = config.training_address
        alone = Member(config.own_name, "", address, address, 0, trainers=config.trainers_per_node)
        roster, rank = Roster((alone,)), 0
    members = roster.members if roster else ()
    training = [member for member in members if member.role != PSERVER]
    serving = [member for member in members if member.role == PSERVER] or training[: config.pservers or len(training)]
    _refuse_other_numbers(config, training)
    trainers = [
        host_port(member.training_address, _port_of(config, number))
        for member in training
        for number in range(member.trainers)
    ]
    servers = [host_port(member.training_address, config.port) for member in serving]
    return Layout(
        servers=(tuple(servers) or (host_port(_UNKNOWN, config.port),)) if mode == "ps" else (),
        trainers=tuple(trainers) or (_UNKNOWN,),
        hosts=tuple(member.training_address for member in training) or (_UNKNOWN,),
        everywhere=tuple(member.training_address for member in members) or (_UNKNOWN,),
        own=None if rank is None else config.shape.number(rank),
        own_host=_UNKNOWN if rank is None or not members else members[rank].training_address,
    )


def _refuse_other_numbers(config: JobConfig, members: Sequence[Member]) -> None:
    """Numbers of shards and ranks follow from what is the same on all that train."""
    for member in members:
        if config.role != PSERVER and member.trainers != config.trainers_per_node:
            raise Failure(
                Exit.CONFIG,
                f"LAUNCHER_TRAINERS_PER_NODE: {member_name(member.role, member.rank)} (pod {member.pod}) runs "
                f"{member.trainers} trainers, this member {config.trainers_per_node}: expected the same number on all "
                "nodes",
            )


def _port_of(config: JobConfig, trainer: int) -> int:
    """Each trainer of a member has a port of its own, above the gang's."""
    return config.gang.port + 1 + trainer


def _common(config: JobConfig, layout: Layout) -> dict[str, str]:
    """What every process is told, whatever it is."""
    given = config.environment
    told = {
        "TRAINERS": layout.count,
        "PADDLE_TRAINERS_NUM": layout.count,
        "PADDLE_TRAINERS": ",".join(layout.hosts),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(layout.trainers),
        "POD_IP": layout.own_host,
        "LAUNCHER_WORKDIR": config.workdir,
        "LAUNCHER_DATA_DIR": config.data_folder(),
        "LAUNCHER_SAVE_DIR": config.output,
        "PYTHONUNBUFFERED": given.get("PYTHONUNBUFFERED", "1"),  # what a program that dies said last must be in its log
    }
    device = config.nic if config.members > 1 else _LOOPBACK
    told |= {name: given.get(name) or device for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return told | {name: _without_proxy(given.get(name), layout) for name in PROXIES}


def _without_proxy(given: str | None, layout: Layout) -> str:
    """Peers are always reached directly: a proxy between them has hung Paddle's rendezvous."""
    return ",".join(dict.fromkeys([*(given.split(",") if given else []), *layout.everywhere, "localhost", "127.0.0.1"]))


def _ps(config: JobConfig, layout: Layout) -> dict[str, str]:
    given = config.environment
    gloo = given.get("PADDLE_WITH_GLOO") or "0"
    told = {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(layout.servers),
        "PADDLE_WITH_GLOO": gloo,
        "FLAGS_enable_pir_api": given.get("FLAGS_enable_pir_api") or "0",  # 3.0 has parameter servers only without it
    }
    if gloo != "0":
        http = f"{layout.servers[0].rpartition(':')[0]}:{config.port + 1}"
        told["PADDLE_GLOO_RENDEZVOUS"] = given.get("PADDLE_GLOO_RENDEZVOUS") or "3"
        told["PADDLE_GLOO_HTTP_ENDPOINT"] = given.get("PADDLE_GLOO_HTTP_ENDPOINT") or http
    return told


def _collective(config: JobConfig, layout: Layout) -> dict[str, str]:
    told = config.environment.get("PADDLE_DISTRI_BACKEND") or "gloo"
    backend = {} if config.gpus else {"PADDLE_DISTRI_BACKEND": told}
    return {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_MASTER": layout.trainers[0],
        "PADDLE_NNODES": str(config.shape.trainers),
        "PADDLE_GLOBAL_SIZE": layout.count,
        "PADDLE_LOCAL_SIZE": str(config.trainers_per_node),
        **backend,
    }


def _single(config: JobConfig, layout: Layout) -> dict[str, str]:
    """A program on its own: nothing that would make Paddle look for others."""
    return {}


def _server(config: JobConfig, command: Sequence[str], variables: Mapping[str, str], layout: Layout) -> Process:
    told = {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINER_ID": _shown(layout.own),
        "PADDLE_PORT": str(config.port),
        "PADDLE_CURRENT_ENDPOINT": host_port(layout.own_host, config.port),
    }
    together = variables["PADDLE_WITH_GLOO"] == "2" or variables.get("PADDLE_GLOO_RENDEZVOUS") == "3"
    return Process(
        role="pserver",
        argv=tuple(command),
        env={**config.environment, **variables, **told},
        cwd=config.workdir,
        log="server.log",
        echo=not config.job_folder,  # without a volume standard output is where logs are looked for
        ports=() if together else (config.port,),  # together: it listens only once trainers have come
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
    """The member's trainer, or the one of this number where it has several."""
    rank = None if layout.own is None else layout.own * config.trainers_per_node + number
    port = _port_of(config, number)
    told = {
        "TRAINER_ID": _shown(rank),
        "PADDLE_TRAINER_ID": _shown(rank),
        "PADDLE_GLOBAL_RANK": _shown(rank),
        "PADDLE_LOCAL_RANK": str(number),
        "PADDLE_RANK_IN_NODE": str(number),
        "PADDLE_PORT": str(port),
        "PADDLE_CURRENT_ENDPOINT": host_port(layout.own_host, port),
        "LAUNCHER_DATA_DIR": config.data_folder(number),
    }
    if config.gpus:
        told["FLAGS_selected_gpus"] = str(number % config.gpus)
    return Process(
        role="trainer",
        argv=tuple(command),
        env={**config.environment, **variables, **told},
        cwd=config.workdir,
        log=f"train_{number}.log" if number else "train.log",
        echo=True,
        ports=(port,) if leads else (),
        pass_mark=b"Pass=",
    )


def _shown(rank: int | None) -> str:
    return "<rank>" if rank is None else str(rank)
