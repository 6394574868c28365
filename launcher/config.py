"""The environment contract: from variables to a configuration, checked as a whole. No other file reads os.environ.

`read` gives a whole JobConfig, or raises ConfigProblems with everything that is wrong, a line each.
"""

from __future__ import annotations

import difflib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.base.host import device_address, device_names, visible_gpus
from launcher.errors import ConfigProblems, Exit, Failure
from launcher.model import BOTH, PSERVER, TRAINER, Shape
from launcher.variables import BY_ROLE, EACH_GPU, SERVICE_ACCOUNT, TERMINATION_LOG, VARIABLES, Variable

_ALIKE = 0.87  # of 1: a letter or two of a name


@dataclass(frozen=True)
class JobConfig:
    """The whole of what one launcher was told. `environment` is what its children inherit."""

    job_name: str | None
    job_path: str | None
    namespace: str
    train_config_dir: str | None
    nic: str
    port: int
    ports_num: int
    ports_num_sparse: int
    role: str  # "both" unless told
    shape: Shape
    trainer_count: int | None
    discovery: str
    peers: tuple[str, ...]  # in rank order
    service: str | None
    selector: str
    job_id: str | None
    rank: int | None  # in the gang: of all members
    peer_timeout: float
    gang_port: int
    silence: float
    secret_file: str | None
    stop_grace: float
    volume_timeout: float
    workdir: str
    scratch: str | None  # in the place of a work directory that nothing can be written to
    termination_log: str
    stay: bool
    mode: str | None
    pservers: int | None
    trainers_per_node: int
    gpus: int  # that are visible here
    max_restarts: int
    rejoin_timeout: float
    stall_timeout: float
    backoff_limit: int | None
    failure_policy: bool
    pod_name: str | None
    pod_ip: str | None
    pod_uid: str | None
    host_name: str
    training_address: str
    environment: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def members(self) -> int:
        """How many launchers make the gang."""
        return self.shape.size

    @property
    def trainers(self) -> int:
        """How many trainers there are, on all nodes."""
        return self.shape.trainers * self.trainers_per_node

    @property
    def gathers(self) -> bool:
        """Whether the members wait for another pod when one is lost."""
        return self.members > 1 and self.max_restarts > 0 and self.rejoin_timeout > 0

    @property
    def job_folder(self) -> str | None:
        """Where the job lives on the volume, if there is one."""
        return os.path.join(self.job_path, self.job_name or "") if self.job_path else None

    @property
    def output(self) -> str:
        """Logs, status and models: on the volume, or else in the work directory, if it can be written."""
        return os.path.join(self.job_folder or self.scratch or self.workdir, "output")

    def data_folder(self, trainer: int = 0) -> str:
        """Where the shard of the pod's trainer goes, or that of one of its several."""
        return os.path.join(self.workdir, "data" if self.trainers_per_node == 1 else f"data_{trainer}")

    @property
    def own_name(self) -> str:
        """How this member is called in messages before anybody told better."""
        return self.pod_name or self.host_name


@dataclass(frozen=True)
class RoleMember:
    """A member of a job with roles, as far as it is told who it is, whatever else may be wrong."""

    job_path: str
    output: str
    job_id: str
    role: str
    number: int | None  # within the role
    pod: str


_WHO = ("JOB_PATH", "JOB_NAME", "LAUNCHER_ROLE", "LAUNCHER_JOB_ID")
_WHICH = ("LAUNCHER_RANK", "JOB_COMPLETION_INDEX", "POD_NAME")
_COUNTED = {
    BOTH: "CONF_PADDLE_GRADIENT_NUM",
    TRAINER: "CONF_PADDLE_GRADIENT_NUM",
    PSERVER: "LAUNCHER_PSERVERS",
}
_DISCOVERY = ("LAUNCHER_DISCOVERY", "LAUNCHER_PEERS", "LAUNCHER_SERVICE", "LAUNCHER_SELECTOR")


def read(
    environment: Mapping[str, str],
    own_flags: Mapping[str, str],
    *,
    programs: Sequence[str] = (),
    check_here: bool = True,
) -> JobConfig:
    """The configuration in `environment`, where `own_flags` (variable name to value) go first.

    `check_here` is for what only the pod itself can answer: devices, `programs`, folders; `plan` does without.
    """
    given = {name: value for name, value in {**environment, **own_flags}.items() if value != ""}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for variable in VARIABLES:
        values[variable.name] = _value(variable, given, problems)
    single = not any(given.get(name) for name in ("JOB_NAME", "LAUNCHER_ROLE", *_DISCOVERY))
    _fill_in(values, given, single)
    problems += _contradictions(values, given, single)
    training_address = ""
    if check_here:
        training_address = _check_here(values, problems)
        problems += [_missing_program(name, environment) for name in programs if not _is_program(name, environment)]
    if problems:
        raise ConfigProblems(problems)
    role, shape = values["LAUNCHER_ROLE"] or BOTH, _shape(values)
    return JobConfig(
        job_name=values["JOB_NAME"],
        job_path=values["JOB_PATH"],
        namespace=values["JOB_NAMESPACE"],
        train_config_dir=values["TRAIN_CONFIG_DIR"],
        nic=values["CONF_PADDLE_NIC"],
        port=values["CONF_PADDLE_PORT"],
        ports_num=values["CONF_PADDLE_PORTS_NUM"],
        ports_num_sparse=values["CONF_PADDLE_PORTS_NUM_SPARSE"],
        role=role,
        shape=shape,
        trainer_count=values["TRAINER_COUNT"],
        discovery=values["LAUNCHER_DISCOVERY"],
        peers=_in_rank_order(values["LAUNCHER_PEERS"] or {}),
        service=values["LAUNCHER_SERVICE"],
        selector=values["LAUNCHER_SELECTOR"],
        job_id=values["LAUNCHER_JOB_ID"],
        rank=None if values["LAUNCHER_RANK"] is None else shape.rank(role, values["LAUNCHER_RANK"]),
        peer_timeout=values["LAUNCHER_PEER_TIMEOUT"],
        gang_port=values["LAUNCHER_GANG_PORT"],
        silence=values["LAUNCHER_SILENCE"],
        secret_file=values["LAUNCHER_SECRET_FILE"],
        stop_grace=values["LAUNCHER_STOP_GRACE"],
        volume_timeout=values["LAUNCHER_VOLUME_TIMEOUT"],
        workdir=values["LAUNCHER_WORKDIR"],
        scratch=_scratch(values) if check_here else None,
        termination_log=values["LAUNCHER_TERMINATION_LOG"],
        stay=values["LAUNCHER_STAY"],
        mode=values["LAUNCHER_MODE"],
        pservers=values["LAUNCHER_PSERVERS"],
        trainers_per_node=values["LAUNCHER_TRAINERS_PER_NODE"],
        gpus=visible_gpus(environment) if check_here else 0,
        max_restarts=values["LAUNCHER_MAX_RESTARTS"],
        rejoin_timeout=values["LAUNCHER_REJOIN_TIMEOUT"],
        stall_timeout=values["LAUNCHER_STALL_TIMEOUT"],
        backoff_limit=values["LAUNCHER_BACKOFF_LIMIT"],
        failure_policy=values["LAUNCHER_FAILURE_POLICY"],
        pod_name=values["POD_NAME"],
        pod_ip=values["POD_IP"],
        pod_uid=values["POD_UID"],
        host_name=socket.gethostname(),
        training_address=training_address,
        environment=dict(environment),
        warnings=tuple(_misspelt({**environment, **own_flags})),
    )


def environment() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def variable_of_flag(flag: str) -> str | None:
    """LAUNCHER_PEER_TIMEOUT of `--launcher-peer-timeout`; None where there is no such variable."""
    name = flag.lstrip("-").upper().replace("-", "_")
    return name if name in {v.name for v in VARIABLES if v.name.startswith("LAUNCHER_")} else None


def flags() -> list[str]:
    """The launcher's own flags."""
    names = (variable.name for variable in VARIABLES)
    return [f"--{name.lower().replace('_', '-')}" for name in names if name.startswith("LAUNCHER_")]


def termination_log(environment: Mapping[str, str]) -> str:
    """Where the termination message goes, also when the rest of the configuration is wrong."""
    return environment.get("LAUNCHER_TERMINATION_LOG") or TERMINATION_LOG


def role_member(environment: Mapping[str, str], own_flags: Mapping[str, str]) -> RoleMember | None:
    """Who this is, also when the rest of the configuration is wrong; None where no other role could know it by that."""
    given = {name: value for name, value in {**environment, **own_flags}.items() if value != ""}
    problems: list[str] = []
    told = {known.name: _value(known, given, problems) for known in VARIABLES if known.name in (*_WHO, *_WHICH)}
    path, name, role, job_id = (told[variable] for variable in _WHO)
    if problems or not (path and name and role and job_id):
        return None
    number = told["JOB_COMPLETION_INDEX"] if told["LAUNCHER_RANK"] is None else told["LAUNCHER_RANK"]
    counted = next(known for known in VARIABLES if known.name == _COUNTED[role])
    count = _value(counted, given, [])
    if count and number is not None and number >= count:
        return None  # once that is mended nobody has this number, so that nobody would take a sign of it back
    output = os.path.join(path, name, "output")
    return RoleMember(path, output, job_id, role, number, told["POD_NAME"] or socket.gethostname())


def workdir(environment: Mapping[str, str]) -> str:
    """The work directory, for commands that look at a running launcher."""
    return environment.get("LAUNCHER_WORKDIR") or os.getcwd()


def job_folder(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The folder of the job that a command is about: its one argument, or what JOB_PATH and JOB_NAME say."""
    if len(arguments) > 1:
        raise Failure(Exit.USAGE, f"{' '.join(arguments)}: expected one folder, JOB_PATH/JOB_NAME")
    if arguments:
        return arguments[0]
    if environment.get("JOB_PATH") and environment.get("JOB_NAME"):
        return os.path.join(environment["JOB_PATH"], environment["JOB_NAME"])
    raise Failure(Exit.USAGE, "expected the job's folder as an argument, or JOB_PATH and JOB_NAME in the environment")


def _value(variable: Variable, given: Mapping[str, str], problems: list[str]) -> Any:
    if variable.name not in given:
        return variable.default
    try:
        return variable.parse(given[variable.name])
    except ValueError:
        problems.append(f"{variable.name}: {given[variable.name]!r}: expected {variable.expected}")
        return variable.default


def _fill_in(values: dict[str, Any], given: Mapping[str, str], single: bool) -> None:
    """Defaults that follow from other variables."""
    if single and "CONF_PADDLE_GRADIENT_NUM" not in given:
        values["CONF_PADDLE_GRADIENT_NUM"] = 1
    if values["LAUNCHER_DISCOVERY"] is None:
        by_service = "dns" if values["LAUNCHER_SERVICE"] else "kubernetes"
        values["LAUNCHER_DISCOVERY"] = "static" if values["LAUNCHER_PEERS"] else by_service
    if values["LAUNCHER_RANK"] is None:
        values["LAUNCHER_RANK"] = values["JOB_COMPLETION_INDEX"]
    if values["LAUNCHER_SELECTOR"] is None:
        values["LAUNCHER_SELECTOR"] = f"job-name={values['JOB_NAME']}"
    if values["LAUNCHER_GANG_PORT"] is None:
        values["LAUNCHER_GANG_PORT"] = _last_port(values) + 1
    if values["LAUNCHER_TRAINERS_PER_NODE"] == EACH_GPU:
        values["LAUNCHER_TRAINERS_PER_NODE"] = visible_gpus(given)
    if values["JOB_NAMESPACE"] is None:
        values["JOB_NAMESPACE"] = values["POD_NAMESPACE"] or _service_account_namespace() or "default"
    if values["LAUNCHER_WORKDIR"] is None:
        try:
            values["LAUNCHER_WORKDIR"] = os.getcwd()
        except FileNotFoundError:
            values["LAUNCHER_WORKDIR"] = "."  # found wanting with all the rest


def _shape(values: Mapping[str, Any]) -> Shape:
    """Servers of their own count only where there are roles."""
    return Shape(values["CONF_PADDLE_GRADIENT_NUM"], values["LAUNCHER_PSERVERS"] if values["LAUNCHER_ROLE"] else 0)


def _in_rank_order(peers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(peer for role in (BOTH, TRAINER, PSERVER) for peer in peers.get(role, ()))


def _last_port(values: Mapping[str, Any]) -> int:
    ports: int = values["CONF_PADDLE_PORTS_NUM"] + values["CONF_PADDLE_PORTS_NUM_SPARSE"]
    first: int = values["CONF_PADDLE_PORT"]
    return first + ports - 1


def _service_account_namespace() -> str | None:
    try:
        with open(f"{SERVICE_ACCOUNT}/namespace", encoding="utf-8") as file:
            return file.read().strip() or None
    except OSError:
        return None


def _contradictions(values: Mapping[str, Any], given: Mapping[str, str], single: bool) -> list[str]:
    """What is wrong between variables that are each right."""
    problems = []
    size, discovery = values["CONF_PADDLE_GRADIENT_NUM"], values["LAUNCHER_DISCOVERY"]
    if size is None and "CONF_PADDLE_GRADIENT_NUM" not in given:
        problems.append("CONF_PADDLE_GRADIENT_NUM: unset: expected the number of nodes, the Job's parallelism")
    if values["JOB_PATH"] and "JOB_NAME" not in given:
        problems.append(
            "JOB_NAME: unset: expected a name, since JOB_PATH is set: the job's folder is JOB_PATH/JOB_NAME"
        )
    role, servers = values["LAUNCHER_ROLE"], values["LAUNCHER_PSERVERS"]
    problems += _against_roles(values, given)
    gang = size is None or size > 1 or role is not None
    by_name = discovery == "kubernetes" and "LAUNCHER_SELECTOR" not in given
    if role and by_name:
        problems.append("LAUNCHER_SELECTOR: unset: expected labels that the pods of both roles have")
    elif gang and by_name and "JOB_NAME" not in given and not values["JOB_PATH"]:
        problems.append("JOB_NAME: unset: expected the Job's name, to find its pods by the label job-name")
    if gang and discovery == "static" and not values["LAUNCHER_PEERS"] and "LAUNCHER_PEERS" not in given:
        problems.append("LAUNCHER_PEERS: unset: expected addresses in rank order, since LAUNCHER_DISCOVERY is static")
    if gang and discovery == "dns" and not values["LAUNCHER_SERVICE"] and "LAUNCHER_SERVICE" not in given:
        problems.append("LAUNCHER_SERVICE: unset: expected a headless Service, since LAUNCHER_DISCOVERY is dns")
    if gang and discovery == "static":
        problems += _wrong_numbers_of_peers(values, given)
    peers = [peer for part in (values["LAUNCHER_PEERS"] or {}).values() for peer in part]
    if twice := sorted({peer for peer in peers if peers.count(peer) > 1}):
        problems.append(f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected each address once: {', '.join(twice)}")
    rank, counted = values["LAUNCHER_RANK"], _COUNTED[role or BOTH]
    most = values[counted]
    if most and rank is not None and rank >= most:
        name = "LAUNCHER_RANK" if "LAUNCHER_RANK" in given else "JOB_COMPLETION_INDEX"
        problems.append(f"{name}: {given[name]!r}: expected 0 to {most - 1}, since {counted} is {most}")
    if size and servers and servers > size and not role:
        problems.append(f"LAUNCHER_PSERVERS: {servers}: expected at most {size}, one a node (CONF_PADDLE_GRADIENT_NUM)")
    last = _last_port(values)
    if last > 65535:
        problems.append(f"CONF_PADDLE_PORT: {values['CONF_PADDLE_PORT']}: expected room for all ports up to 65535")
    elif values["CONF_PADDLE_PORT"] <= values["LAUNCHER_GANG_PORT"] <= last:
        problems.append(
            f"LAUNCHER_GANG_PORT: {values['LAUNCHER_GANG_PORT']}: expected a port outside the pserver's own, "
            f"{values['CONF_PADDLE_PORT']} to {last}"
        )
    elif values["LAUNCHER_GANG_PORT"] > 65535:
        problems.append("LAUNCHER_GANG_PORT: unset: expected a port, since there is none after the pserver's last")
    return problems


def _against_roles(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Each role needs its number of pods, and whoever looks for the others must know who is what."""
    role, peers, service = values["LAUNCHER_ROLE"], values["LAUNCHER_PEERS"], values["LAUNCHER_SERVICE"] or ""
    problems = []
    if role and not values["LAUNCHER_PSERVERS"]:
        told = "unset" if values["LAUNCHER_PSERVERS"] is None else "0"
        problems.append(f"LAUNCHER_PSERVERS: {told}: expected how many pods serve, since LAUNCHER_ROLE is {role}")
    if role and values["LAUNCHER_MODE"] not in (None, "ps"):
        problems.append(f"LAUNCHER_MODE: {values['LAUNCHER_MODE']!r}: expected ps, since LAUNCHER_ROLE is {role}")
    if peers and bool(role) == (BOTH in peers):
        problems.append(
            f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected trainer=ADDRESSES;pserver=ADDRESSES where "
            "LAUNCHER_ROLE is set, and addresses alone where it is not"
        )
    if service and bool(role) != service.startswith(BY_ROLE):
        problems.append(
            f"LAUNCHER_SERVICE: {service!r}: expected {BY_ROLE}NAME.SERVICE where LAUNCHER_ROLE is set, with the NAME "
            "of the trainers' Job or StatefulSet, and the Service alone where it is not"
        )
    return problems


def _wrong_numbers_of_peers(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    return [
        f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected {values[_COUNTED[role]]} addresses"
        f"{'' if role == BOTH else f' of the role {role}'} ({_COUNTED[role]}), found {len(addresses)}"
        for role, addresses in (values["LAUNCHER_PEERS"] or {}).items()
        if values[_COUNTED[role]] and len(addresses) != values[_COUNTED[role]]
    ]


def _check_here(values: Mapping[str, Any], problems: list[str]) -> str:
    """What this pod must have. Gives the training address."""
    workdir = values["LAUNCHER_WORKDIR"]
    if not os.path.isdir(workdir):
        problems.append(f"LAUNCHER_WORKDIR: {workdir!r}: expected a folder that exists")
    elif values["JOB_PATH"] and not os.access(workdir, os.W_OK | os.X_OK):
        problems.append(f"LAUNCHER_WORKDIR: {workdir!r}: expected a folder that uid {os.getuid()} can write to")
    if not values["LAUNCHER_TRAINERS_PER_NODE"] and values["LAUNCHER_ROLE"] != PSERVER:
        problems.append("LAUNCHER_TRAINERS_PER_NODE: 'gpus': expected GPUs here, but none is visible")
    nic = values["CONF_PADDLE_NIC"]
    if values["CONF_PADDLE_GRADIENT_NUM"] == 1 and not values["LAUNCHER_ROLE"]:
        return values["POD_IP"] or "127.0.0.1"
    address = device_address(nic)
    if address is None:
        problems.append(
            f"CONF_PADDLE_NIC: {nic!r}: expected a network device with an address; here are {', '.join(device_names())}"
        )
    return address or ""


def _scratch(values: Mapping[str, Any]) -> str | None:
    """An image's own directory is often not the user's to write to, and without a volume nothing has to be kept."""
    if values["JOB_PATH"] or os.access(values["LAUNCHER_WORKDIR"], os.W_OK | os.X_OK):
        return None
    return os.path.join(tempfile.gettempdir(), f"paddle-launcher-{os.getpid()}")


def _is_program(name: str, environment: Mapping[str, str]) -> bool:
    return shutil.which(name, path=environment.get("PATH", os.defpath)) is not None


def _missing_program(name: str, environment: Mapping[str, str]) -> str:
    path = environment.get("PATH", os.defpath)
    return f"PATH: {path!r}: expected a folder with the program {name!r}: is it in this image?"


def _misspelt(given: Mapping[str, str]) -> list[str]:
    """Warnings for names that look like one of ours that is not set. Never more than that: Kubernetes itself sets
    LAUNCHER_SERVICE_HOST and the like where a Service is called `launcher`."""
    unset = {variable.name for variable in VARIABLES if not given.get(variable.name)}
    known = {variable.name for variable in VARIABLES}
    warnings = []
    for name in sorted(set(given) - known):
        if near := difflib.get_close_matches(name, unset, n=1, cutoff=_ALIKE):
            warnings.append(f"{name} is no variable of the launcher and is ignored: is {near[0]} meant?")
    return warnings
