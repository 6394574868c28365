"""Paddle v0: `paddle pserver` and `paddle train`, configured by flags."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from launcher.base.passes import named_paths, pass_folder, pass_number
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import FIRST, Plan, Process, Roster, Saves, Start
from launcher.paddle import elastic

PROGRAMS = ("paddle",)
_COMMENT = "paddle_process_by_paddle"
_TRAINER_CONFIGS = ("trainer_config.lr.py", "trainer_config.py")
_TRUE = ("", "1", "true", "t", "yes", "y")
_PSERVER_TRIES = 3  # a pserver of v0 sometimes crashes at its start: 2 of 320 starts did
_NUM_PASSES = 100  # Paddle's default
_READ_FLAGS = (
    *("trainer_count", "config", "job", "save_dir", "saving_period"),
    *("start_pass", "num_passes", "init_model_path", "flagfile"),
)
_UNKNOWN_PSERVERS = "<addresses of all members>"
_UNKNOWN_RANK = "<rank>"

# The flags that the launcher sets, each with the variable that sets its value.
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
    config: JobConfig, flags: Sequence[str], roster: Roster | None, rank: int | None, start: Start = FIRST
) -> Plan:
    """Return the plan of one member: a pserver and a trainer. A job of one member has no pserver.

    Return a plan without processes if no pass is left to train.
    """
    size = roster.shape.size if roster else config.shape.size
    owned = _owned_values(config, size, _training_addresses(roster), rank)
    _check_owned_flags(size, flags, owned)
    resume_flags = _resume_flags(config, flags, start.resume)
    if resume_flags is None:
        return Plan(servers=(), trainers=())
    environment = {**_environment(config), **(elastic.sizes(config, size, start) if roster else {})}
    if size == 1:
        local = _trainer(config, environment, [], flags, ["--local=1", *resume_flags])
        return Plan((), (local,), shows_passes=_trains(flags), early=not config.is_elastic)
    small = f"--small_messages={_last(flags, 'small_messages') or '1'}"
    network = [f"--{name}={owned[name]}" for name in ("nics", "port", "ports_num", "ports_num_for_sparse")]
    network += [f"--num_gradient_servers={size}", f"--comment={_COMMENT}", small]
    ranked = [f"--pservers={owned['pservers']}", f"--trainer_id={owned['trainer_id']}", "--local=0"]
    trainer = _trainer(config, environment, network + ranked, flags, resume_flags)
    early = not config.is_elastic  # else the number of trainers is not known before the join
    return Plan((_pserver(config, network),), (trainer,), shows_passes=_trains(flags), early=early)


def saves(config: JobConfig, flags: Sequence[str]) -> Saves | None:
    """Return where passes are saved, or None if the job cannot resume: not all trainers could read the folder."""
    if config.job_path is None or not _trains(flags):
        return None
    if _last(flags, "flagfile") is not None:
        return None  # the file may set save_dir and num_passes, and the launcher does not read it
    folder = os.path.normpath(os.path.join(config.workdir, _last(flags, "save_dir") or config.output))
    if not folder.startswith(os.path.join(os.path.normpath(config.job_path), "")):
        return None
    first, wanted = _integer(_last(flags, "start_pass"), 0), _integer(_last(flags, "num_passes"), _NUM_PASSES)
    start = os.path.normpath(os.path.join(config.workdir, _last(flags, "init_model_path") or "."))
    if (number := pass_number(folder, start)) is not None and first <= number < first + wanted:
        return None  # the user's initial model is in a folder that a pass of this job would overwrite
    every_pass = _integer(_last(flags, "saving_period"), 1) == 1
    return Saves(folder, first, wanted, every_pass, of_v0=True, named=named_paths(flags, config.workdir))


def _trains(flags: Sequence[str]) -> bool:
    """Return whether the job trains: with another --job, lines `Pass=` are no finished passes."""
    return _last(flags, "job") in (None, "train")


def _integer(value: str | None, default: int) -> int:
    """Parse a number as gflags does. Return `default` for any other text: Paddle itself then refuses it."""
    if value is None or not re.fullmatch(r"\s*[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)", value):
        return default
    return int(value, 16 if "x" in value.lower() else 10)


def _resume_flags(config: JobConfig, flags: Sequence[str], resume: int | None) -> list[str] | None:
    """Return the flags that resume after the pass `resume`, or None if no pass is left to train.

    In these flags, num_passes is the number of passes that are left.
    """
    saved = None if resume is None else saves(config, flags)
    if resume is None or saved is None or saved.wanted is None:
        return []
    left = saved.first + saved.wanted - (resume + 1)
    if left <= 0:
        return None
    model = pass_folder(saved.folder, resume)
    return [f"--init_model_path={model}", f"--start_pass={resume + 1}", f"--num_passes={left}"]


def warnings(flags: Sequence[str]) -> list[str]:
    """Return warnings about values that the `paddle` script of v0 splits, since it does not quote its arguments."""
    split = [word for word in flags if re.search(r"[\s*?[]", word)]
    return [f"Paddle's own `paddle` script splits values at spaces and expands * ? [: {word!r}" for word in split]


def _pserver(config: JobConfig, network: Sequence[str]) -> Process:
    ports = range(config.port, config.port + config.ports_num + config.ports_num_sparse)
    return Process(
        role="pserver",
        argv=("paddle", "pserver", *network),
        env=_environment(config),
        cwd=config.workdir,
        log="server.log",
        ports=tuple(ports),
        tries=_PSERVER_TRIES,
    )


def _trainer(
    config: JobConfig,
    environment: Mapping[str, str],
    ours: Sequence[str],
    flags: Sequence[str],
    last: Sequence[str],
) -> Process:
    """Return the trainer.

    `ours` come first, since a user's flag could take the next word as its value. `last` overrides all other flags.
    """
    given = {name for name, _ in _flag_values(flags)}
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
        env=environment,
        cwd=config.workdir,
        log="train.log",
        echo=True,
        pass_mark=b"Pass=" if _trains(flags) else b"",
    )


def _environment(config: JobConfig) -> dict[str, str]:
    """Return the environment of a process.

    By default, the script `paddle` sends statistics before it starts anything. Each start then takes 5 s longer where
    the network drops these packets.
    """
    return {"PADDLE_NO_STAT": "1", **config.environment}


def _trainer_config(workdir: str) -> str:
    """Return the name of the configuration file that exists, else the first name. start_paddle.py used these names."""
    existing = [name for name in _TRAINER_CONFIGS if os.path.exists(os.path.join(workdir, name))]
    return existing[0] if existing else _TRAINER_CONFIGS[0]


def _training_addresses(roster: Roster | None) -> list[str] | None:
    """Return the address of each member's pserver, in rank order. Raises Failure for IPv6, which v0 cannot use."""
    if roster is None:
        return None
    for member in roster.members:
        if ":" in member.training_address and len(roster.members) > 1:
            raise Failure(
                Exit.CONFIG,
                f"CONF_PADDLE_NIC: rank {member.rank} ({member.pod}) has the address {member.training_address} on its "
                "device: expected an IPv4 address, since Paddle v0 cannot use IPv6",
            )
    return [member.training_address for member in roster.members]


def _owned_values(config: JobConfig, size: int, addresses: Sequence[str] | None, rank: int | None) -> dict[str, str]:
    return {
        "nics": config.nic,
        "port": str(config.port),
        "ports_num": str(config.ports_num),
        "ports_num_for_sparse": str(config.ports_num_sparse),
        "pservers": ",".join(addresses) if addresses else _UNKNOWN_PSERVERS,
        "trainer_id": _UNKNOWN_RANK if rank is None else str(rank),
        "num_gradient_servers": str(size),
    }


def _check_owned_flags(size: int, flags: Sequence[str], owned: Mapping[str, str]) -> None:
    """Raise Failure if the user sets a flag of the launcher to another value. Skip values that are not known yet."""
    problems = []
    for name, value in _flag_values(flags):
        if name in _OWNED and not owned[name].startswith("<") and value != owned[name]:
            problems.append(
                f"--{name}: {value!r}: the launcher sets this flag to {owned[name]!r}: remove the flag, "
                f"or set {_OWNED[name]}"
            )
        if name == "local" and size > 1 and value.lower() in _TRUE:
            problems.append(
                f"--local: {value!r}: each of the {size} trainers would train by itself: remove the flag, "
                "or set CONF_PADDLE_GRADIENT_NUM to 1"
            )
    if problems:
        raise Failure(Exit.USAGE, "\n".join(problems))


def _last(flags: Sequence[str], wanted: str) -> str | None:
    """Return the last value of a flag, because Paddle uses that one. Return None if the flag is not set."""
    values = [value for name, value in _flag_values(flags) if name == wanted]
    return (values[-1] or "1") if values else None


def _flag_values(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values as gflags does, for the flags that the launcher knows.

    The forms are --name=value, --name value, --name and --noname, with one dash or two. In names, - may replace _.
    Other flags are skipped: the launcher cannot know whether the next word is the value of such a flag.
    """
    switches = {"local", "small_messages"}
    known = {*_OWNED, *_READ_FLAGS, *switches}
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
