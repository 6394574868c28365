"""Describe what `run` would do here: rank, roster, copies and processes. Start none of these processes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from launcher import paddle
from launcher.base.log import shown_by
from launcher.config import JobConfig
from launcher.discovery.finder import make_finder
from launcher.discovery.ranks import make_roster as roster_of
from launcher.model import BOTH, Member, Process, Roster, member_folder, member_name, role_name
from launcher.run.join import copies, finder_settings
from launcher.store.json_fields import place_fields

# Variables that say how training runs. All other variables may contain passwords, so the plan only counts them.
_SHOWN = ("JOB_", "TRAIN", "CONF_PADDLE_", "LAUNCHER_", "POD_", "PADDLE_", "FLAGS_", "GLOG_", "GLOO_", "NCCL_", "OMP_")
_SHOWN_NAMES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


def describe(config: JobConfig, flags: Sequence[str], command: Sequence[str], *, discover: bool, as_json: bool) -> str:
    """Return the plan as text or JSON, with placeholders for values that only the peers know."""
    with shown_by(logging.NullHandler()):
        rank, roster, job = asyncio.run(_ask_peers(config)) if discover else _known(config)
    plan = paddle.plan(config, flags, command, roster, rank)
    shown_rank = "<rank>" if rank is None else str(config.shape.number(rank))
    content = {
        "job": config.job_name,
        "identity": job,
        "role": config.role,
        "rank": None if rank is None else config.shape.number(rank),
        "nodes": config.members,
        "discovery": config.discovery.method if config.members > 1 else None,
        "roster": [_member(config, member) for member in roster.members] if roster else None,
        "work_directory": config.workdir,
        "copies": [asdict(copy) for copy in copies(config, shown_rank)],
        "logs": os.path.join(config.output, member_folder(config.role, shown_rank)),
        "processes": [_process(process) for process in (*plan.servers, *plan.trainers)],
        "warnings": [*config.warnings, *paddle.warnings(flags, command)],
    }
    return json.dumps(content, indent=1) if as_json else _text(content)


def _known(config: JobConfig) -> tuple[int | None, Roster | None, str | None]:
    """Return rank, roster and identity. A value is None if the configuration alone does not determine it."""
    if config.members == 1:
        return 0, None, config.discovery.job_id
    if config.discovery.method != "static":
        return config.discovery.rank, None, config.discovery.job_id
    shape = config.shape
    members = [
        Member(shape.name(rank), "", address, address, rank, shape.role(rank), config.trainers_per_node)
        for rank, address in enumerate(config.discovery.peers)
    ]
    return config.discovery.rank, Roster(tuple(members)), config.discovery.job_id


def _member(config: JobConfig, member: Member) -> dict[str, Any]:
    return {**asdict(member), **place_fields(member.rank, config.shape)}


async def _ask_peers(config: JobConfig) -> tuple[int | None, Roster | None, str | None]:
    """Find the peers, and return rank, roster and identity. The roster is None if not all members were found."""
    finder = make_finder(finder_settings(config))
    try:
        found = await finder.find()
        members = finder.members()
    finally:
        await finder.close()
    roster = roster_of(members) if len(members) == config.members else None
    ranks = [member.rank for member in roster.members if member.pod == found.me.pod] if roster else []
    return (ranks[0] if ranks else found.rank), roster, found.identity


def _process(process: Process) -> dict[str, Any]:
    shown = {
        name: value for name, value in sorted(process.env.items()) if name.startswith(_SHOWN) or name in _SHOWN_NAMES
    }
    return {
        "role": process.role,
        "argv": list(process.argv),
        "directory": process.cwd,
        "log": process.log,
        "environment": shown,
        "variables_not_shown": len(process.env) - len(shown),
    }


def _place(content: Mapping[str, Any]) -> str:
    rank, role, nodes = content["rank"], content["role"], content["nodes"]
    if rank is None:
        unknown = "not known before the peers are found"
        return (
            f"{unknown} ({nodes} members)" if role == BOTH else f"{role_name(role)}, {unknown}, one of {nodes} members"
        )
    return f"{rank} of {nodes}" if role == BOTH else f"{member_name(role, rank)}, one of {nodes} members"


def _text(content: Mapping[str, Any]) -> str:
    alike = content["role"] == BOTH
    peers = f"peers by {content['discovery']}" if content["discovery"] else "no peers: the job has one member"
    lines = [
        f"job        {content['job'] or '-'}, identity {content['identity'] or 'not known yet'}",
        f"rank       {_place(content)}, {peers}",
        f"directory  {content['work_directory']}",
        f"logs       {content['logs']}",
    ]
    lines += [
        f"copy       {copy['source']}/* to {copy['destination']}/  ({copy['what']})" for copy in content["copies"]
    ]
    for member in content["roster"] or []:
        place = member["rank"] if alike else member_name(member["role"], member["rank"])
        lines.append(f"member     {place}  {member['pod']}  {member['training_address']}")
    for process in content["processes"]:
        lines.append(f"{process['role']:<10} {shlex.join(process['argv'])}")
        for name, value in process["environment"].items():
            lines.append(f"           {name}={shlex.quote(value)}")
        lines.append(f"           and {process['variables_not_shown']} more variables of this environment")
    lines += [f"warning    {warning}" for warning in content["warnings"]]
    return "\n".join(lines)
