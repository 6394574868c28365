"""Paddle v0: `paddle pserver` and `paddle train`, told everything by flags."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from launcher.base.passes import pass_folder, pass_number
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import Plan, Process, Roster, Saves

PROGRAMS = ("paddle",)
_COMMENT = "paddle_process_by_paddle"
_TRAINER_CONFIGS = ("trainer_config.lr.py", "trainer_config.py")
_TRUE = ("", "1", "true", "t", "yes", "y")
_PSERVER_TRIES = 3  # 2 of 320 starts died by themselves
_NUM_PASSES = 100  # Paddle's own default
_HEEDED = ("trainer_count", "config", "job", "save_dir", "start_pass", "num_passes", "init_model_path", "flagfile")
_UNKNOWN_PSERVERS = "<addresses of all members>"
_UNKNOWN_RANK = "<rank>"

# Flags that follow from the environment: the variable that gives each.
_OWNED = {
    "nics": "CONF_PADDLE_NIC",
    "port": "CONF_PADDLE_PORT",
    "ports_num": "CONF_PADDLE_PORTS_NUM",
    "ports_num_for_sparse": "CONF_PADDLE_PORTS_NUM_SPARSE",
    "pservers": "LAUNCHER_PEERS",
    "trainer_id": "LAUNCHER_RANK",
    "num_gradient_servers": "CONF_PADDLE_GRADIENT_NUM",
}


def plan(
    config: JobConfig, flags: Sequence[str], roster: Roster | None, rank: int | None, resume: int | None = None
) -> Plan:
    """The pserver and the trainer of one member; of a job of one, the trainer alone. `resume`: the last whole pass."""
    addresses = _training_addresses(config, roster)
    owned = _owned_values(config, addresses, rank)
    _refuse_other_values(config, flags, owned)
    rest = _what_is_left(config, flags, resume)
    if rest is None:
        return Plan(servers=(), trainers=())
    if config.members == 1:
        return Plan(servers=(), trainers=(_trainer(config, [], flags, ["--local=1", *rest]),))
    small = f"--small_messages={_last(flags, 'small_messages') or '1'}"
    network = [f"--{name}={owned[name]}" for name in ("nics", "port", "ports_num", "ports_num_for_sparse")]
    network += [f"--num_gradient_servers={config.members}", f"--comment={_COMMENT}", small]
    ranked = [f"--pservers={owned['pservers']}", f"--trainer_id={owned['trainer_id']}", "--local=0"]
    return Plan(servers=(_pserver(config, network),), trainers=(_trainer(config, network + ranked, flags, rest),))


def saves(config: JobConfig, flags: Sequence[str]) -> Saves | None:
    """Every trainer needs the folder of the pass that it goes on from, so that it must be on the volume."""
    if config.job_path is None or _last(flags, "job") not in (None, "train"):
        return None
    if _last(flags, "flagfile") is not None:
        return None  # only Paddle reads what is in it: how many passes, and where they are saved
    folder = os.path.normpath(os.path.join(config.workdir, _last(flags, "save_dir") or config.output))
    if not folder.startswith(os.path.join(os.path.normpath(config.job_path), "")):
        return None
    first, wanted = _whole(_last(flags, "start_pass"), 0), _whole(_last(flags, "num_passes"), _NUM_PASSES)
    start = os.path.normpath(os.path.join(config.workdir, _last(flags, "init_model_path") or "."))
    if (number := pass_number(folder, start)) is not None and first <= number < first + wanted:
        return None  # it would be taken for one of this job's own passes, and be written over by one
    return Saves(folder, first, wanted)


def _whole(value: str | None, default: int) -> int:
    """A number as gflags reads it; Paddle itself refuses what is none."""
    if value is None or not re.fullmatch(r"\s*[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)", value):
        return default
    return int(value, 16 if "x" in value.lower() else 10)


def _what_is_left(config: JobConfig, flags: Sequence[str], resume: int | None) -> list[str] | None:
    """The flags to go on after a pass; None when no pass is left. num_passes counts those that are still to come."""
    told = None if resume is None else saves(config, flags)
    if resume is None or told is None or told.wanted is None:
        return []
    left = told.first + told.wanted - (resume + 1)
    if left <= 0:
        return None
    model = pass_folder(told.folder, resume)
    return [f"--init_model_path={model}", f"--start_pass={resume + 1}", f"--num_passes={left}"]


def warnings(flags: Sequence[str]) -> list[str]:
    """The `paddle` script of v0 hands its arguments on without quotes: its shell splits them, whatever we do."""
    split = [word for word in flags if re.search(r"[\s*?[]", word)]
    return [f"Paddle's own `paddle` script splits values at spaces and expands * ? [: {word!r}" for word in split]


def _pserver(config: JobConfig, network: Sequence[str]) -> Process:
    ports = range(config.port, config.port + config.ports_num + config.ports_num_sparse)
    return Process(
        role="pserver",
        argv=("paddle", "pserver", *network),
        env=config.environment,
        cwd=config.workdir,
        log="server.log",
        ports=tuple(ports),
        tries=_PSERVER_TRIES,
    )


def _trainer(config: JobConfig, ours: Sequence[str], flags: Sequence[str], last: Sequence[str]) -> Process:
    """Ours first: a flag of the user's without its value must not swallow one. `last` overrides what the user gave."""
    given = {name for name, _ in _pairs(flags)}
    defaults = []
    if config.trainer_count is not None and "trainer_count" not in given:
        defaults.append(f"--trainer_count={config.trainer_count}")
    if "config" not in given:
        defaults.append(f"--config={_trainer_config(config.workdir)}")
    if "save_dir" not in given:
        defaults.append(f"--save_dir={config.output if config.job_folder else './output'}")
    return Process(
        role="trainer",
        argv=("paddle", "train", *ours, *defaults, *flags, *last),
        env=config.environment,
        cwd=config.workdir,
        log="train.log",
        echo=True,
        pass_mark=b"Pass=",
    )


def _trainer_config(workdir: str) -> str:
    """The one that the configuration folder brought, by the names that the old start scripts used."""
    there = [name for name in _TRAINER_CONFIGS if os.path.exists(os.path.join(workdir, name))]
    return there[0] if there else _TRAINER_CONFIGS[0]


def _training_addresses(config: JobConfig, roster: Roster | None) -> list[str] | None:
    """The address of each member's pserver in rank order, the same on every member. Paddle v0 knows IPv4 only."""
    if roster is None:
        return None
    for member in roster.members:
        if ":" in member.training_address and config.members > 1:
            raise Failure(
                Exit.CONFIG,
                f"CONF_PADDLE_NIC: rank {member.rank} ({member.pod}) has the address {member.training_address} on its "
                "device: expected an IPv4 address, since Paddle v0 cannot use IPv6",
            )
    return [member.training_address for member in roster.members]


def _owned_values(config: JobConfig, addresses: Sequence[str] | None, rank: int | None) -> dict[str, str]:
    return {
        "nics": config.nic,
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "ports_num_for_sparse": str(config.ports_num_sparse),
        "pservers": ",".join(addresses) if addresses else _UNKNOWN_PSERVERS,
        "trainer_id": _UNKNOWN_RANK if rank is None else str(rank),
        "num_gradient_servers": str(config.members),
    }


def _refuse_other_values(config: JobConfig, flags: Sequence[str], owned: Mapping[str, str]) -> None:
    """A flag that the launcher owns may repeat the value. What is not known yet is checked once it is."""
    problems = []
    for name, value in _pairs(flags):
        if name in _OWNED and not owned[name].startswith("<") and value != owned[name]:
            problems.append(
                f"--{name}: {value!r}: the launcher gives this flag the value {owned[name]!r}: leave it out, "
                f"or set {_OWNED[name]}"
            )
        if name == "local" and config.members > 1 and value.lower() in _TRUE:
            problems.append(
                f"--local: {value!r}: each of the {config.members} trainers would train by itself: leave it out, "
                "or set CONF_PADDLE_GRADIENT_NUM to 1"
            )
    if problems:
        raise Failure(Exit.USAGE, "\n".join(problems))


def _last(flags: Sequence[str], wanted: str) -> str | None:
    """The value that Paddle would take for a flag: the last one given."""
    found = [value for name, value in _pairs(flags) if name == wanted]
    return (found[-1] or "1") if found else None


def _pairs(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and values as gflags reads them: --name=value, --name value, --name and --noname, with one dash or two, and
    in names a dash for an underscore.

    Only for names that matter here is the next word taken for a value: which others have one, only Paddle knows.
    """
    switches = {"local", "small_messages"}
    known = {*_OWNED, *_HEEDED, *switches}
    words = iter(flags)
    for word in words:
        match = re.fullmatch(r"--?([A-Za-z_][\w-]*)(=(.*))?", word, re.DOTALL)
        if match is None:
            continue
        name, value = match.group(1).replace("-", "_"), match.group(3)
        if name.startswith("no") and name[2:] in switches:
            yield name[2:], "0"
        elif name in known and value is None:
            yield name, "" if name in switches else next(words, "")
        elif name in known:
            yield name, value or ""
