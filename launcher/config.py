"""The environment contract: every variable, its default and what is expected of it. No other file reads os.environ.

`read` gives a whole JobConfig, or raises ConfigProblems with everything that is wrong, a line each.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.addresses import device_address, device_names
from launcher.errors import ConfigProblems, Exit, Failure

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TERMINATION_LOG = "/dev/termination-log"
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
    size: int
    trainer_count: int | None
    discovery: str
    peers: tuple[str, ...]
    service: str | None
    selector: str
    job_id: str | None
    rank: int | None
    peer_timeout: float
    gang_port: int
    secret_file: str | None
    stop_grace: float
    volume_timeout: float
    workdir: str
    termination_log: str
    stay: bool
    pod_name: str | None
    pod_ip: str | None
    pod_uid: str | None
    host_name: str
    training_address: str
    environment: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def job_folder(self) -> str | None:
        """Where the job lives on the volume, if there is one."""
        return os.path.join(self.job_path, self.job_name or "") if self.job_path else None

    @property
    def output(self) -> str:
        """Logs, status and models: on the volume, or in the work directory where there is none."""
        return os.path.join(self.job_folder or self.workdir, "output")

    @property
    def own_name(self) -> str:
        """How this member is called in messages before anybody told better."""
        return self.pod_name or self.host_name


@dataclass(frozen=True)
class Variable:
    """One variable: how its text becomes a value (ValueError when it can't), its default, and what is expected."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    expected: str
    meaning: str


def _text(value: str) -> str:
    return value


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not low <= int(value) <= high:
            raise ValueError
        return int(value)

    return parse


def _seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip()) or float(value) <= 0:
        raise ValueError
    return float(value)


def _switch(value: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if value.lower() not in words:
        raise ValueError
    return words[value.lower()]


def _matching(pattern: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError
        return value

    return parse


def _folder_name(value: str) -> str:
    if "/" in value or value in (".", ".."):
        raise ValueError
    return value


def _inside(value: str) -> str:
    """A folder below another, as the old start.sh put them together: a slash in front means nothing."""
    path = os.path.normpath(value.strip("/") or ".")
    if path == "." or path.split("/")[0] == "..":
        raise ValueError
    return path


def _absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError
    return os.path.normpath(value)


def _addresses(value: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in value.split(","))
    if not all(re.fullmatch(r"[0-9A-Za-z.:_%-]+", address) for address in addresses):
        raise ValueError
    return addresses


_PORT = "a port, 1 to 65535"
_COUNT = _whole(1, 100_000)

VARIABLES: tuple[Variable, ...] = (
    Variable("JOB_NAME", _folder_name, None, "a name without /", "the job's name, and its folder on the volume"),
    Variable("JOB_PATH", _absolute, None, "an absolute path", "where the shared volume is mounted; unset: no volume"),
    Variable("JOB_NAMESPACE", _text, None, "a namespace", "where the pods are; default: the pod's own namespace"),
    Variable(
        "TRAIN_CONFIG_DIR",
        _inside,
        None,
        "a folder in $JOB_PATH/$JOB_NAME",
        "the configuration folder, copied into the work directory; unset: nothing is copied",
    ),
    Variable(
        "CONF_PADDLE_NIC",
        _matching(r"[^\s/,]+"),
        "eth0",
        "the name of one network device",
        "the device that Paddle uses (--nics)",
    ),
    Variable("CONF_PADDLE_PORT", _whole(1, 65535), 7164, _PORT, "the first port of the pserver (--port)"),
    Variable("CONF_PADDLE_PORTS_NUM", _whole(1, 1000), 2, "a number, 1 to 1000", "ports for dense parameters"),
    Variable("CONF_PADDLE_PORTS_NUM_SPARSE", _whole(0, 1000), 2, "a number, 0 to 1000", "ports for sparse parameters"),
    Variable(
        "CONF_PADDLE_GRADIENT_NUM", _COUNT, None, "the number of nodes, 1 or more", "N: how many pods make the job"
    ),
    Variable("TRAINER_COUNT", _COUNT, None, "a number, 1 or more", "threads or GPUs of a trainer (--trainer_count)"),
    Variable("POD_NAME", _text, None, "the pod's name", "by fieldRef metadata.name; default: the host name"),
    Variable("POD_IP", _text, None, "the pod's address", "by fieldRef status.podIP"),
    Variable("POD_NAMESPACE", _text, None, "the pod's namespace", "by fieldRef metadata.namespace"),
    Variable("POD_UID", _text, None, "the pod's uid", "by fieldRef metadata.uid"),
    Variable(
        "LAUNCHER_DISCOVERY",
        _matching("kubernetes|dns|static"),
        None,
        "kubernetes, dns or static",
        "how peers are found; default: static with LAUNCHER_PEERS, dns with LAUNCHER_SERVICE, else kubernetes",
    ),
    Variable(
        "LAUNCHER_PEERS",
        _addresses,
        (),
        "addresses in rank order, separated by commas",
        "all members' addresses, for static discovery",
    ),
    Variable(
        "LAUNCHER_SERVICE",
        _matching(r"[a-z0-9]([-a-z0-9.]*[a-z0-9.])?"),
        None,
        "the name of a headless Service",
        "the pods' headless Service, for discovery by DNS",
    ),
    Variable(
        "LAUNCHER_SELECTOR",
        _text,
        None,
        "a label selector",
        "the labels of the job's pods, for discovery by Kubernetes; default: job-name=$JOB_NAME",
    ),
    Variable(
        "LAUNCHER_JOB_ID",
        _matching(r"[0-9A-Za-z][-0-9A-Za-z_.]*"),
        None,
        "letters, digits, - _ .",
        "the job's identity; default: the uid of the pods' controller, as far as discovery tells it",
    ),
    Variable(
        "LAUNCHER_RANK",
        _whole(0, 99_999),
        None,
        "a number from 0 to N-1",
        "this member's rank; default: Job index, StatefulSet ordinal or order of addresses",
    ),
    Variable("LAUNCHER_PEER_TIMEOUT", _seconds, 900.0, "seconds, above 0", "how long to wait for peers before exit 75"),
    Variable(
        "LAUNCHER_GANG_PORT",
        _whole(1, 65535),
        None,
        _PORT,
        "where launchers talk to each other; default: the first port after the pserver's (7168)",
    ),
    Variable(
        "LAUNCHER_SECRET_FILE",
        _absolute,
        None,
        "an absolute path",
        "a file with the job's secret (a mounted Secret); default: one made on the volume",
    ),
    Variable(
        "LAUNCHER_STOP_GRACE",
        _seconds,
        20.0,
        "seconds, above 0",
        "how long children may take to end when the pod is told to stop; keep it under terminationGracePeriodSeconds",
    ),
    Variable(
        "LAUNCHER_VOLUME_TIMEOUT",
        _seconds,
        30.0,
        "seconds, above 0",
        "how long the volume may take to answer at the start before exit 74",
    ),
    Variable(
        "LAUNCHER_WORKDIR",
        _absolute,
        None,
        "an absolute path",
        "where configuration and data are copied to and Paddle runs; default: the current directory",
    ),
    Variable(
        "LAUNCHER_TERMINATION_LOG",
        _absolute,
        _TERMINATION_LOG,
        "an absolute path",
        "where Kubernetes expects the termination message; written only if it exists",
    ),
    Variable(
        "LAUNCHER_STAY",
        _switch,
        False,
        "1 or 0",
        "1: once the job is complete, idle until told to stop, for pods that are started again whenever they end",
    ),
    Variable(
        "JOB_COMPLETION_INDEX",
        _whole(0, 99_999),
        None,
        "a number from 0 to N-1",
        "set by Kubernetes in the pods of an Indexed Job: the rank",
    ),
)

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
    single = not given.get("JOB_NAME") and not any(given.get(name) for name in _DISCOVERY)
    _fill_in(values, given, single)
    problems += _contradictions(values, given, single)
    training_address = ""
    if check_here:
        training_address = _check_here(values, problems)
        problems += [_missing_program(name, environment) for name in programs if not _is_program(name, environment)]
    if problems:
        raise ConfigProblems(problems)
    return JobConfig(
        job_name=values["JOB_NAME"],
        job_path=values["JOB_PATH"],
        namespace=values["JOB_NAMESPACE"],
        train_config_dir=values["TRAIN_CONFIG_DIR"],
        nic=values["CONF_PADDLE_NIC"],
        port=values["CONF_PADDLE_PORT"],
        ports_num=values["CONF_PADDLE_PORTS_NUM"],
        ports_num_sparse=values["CONF_PADDLE_PORTS_NUM_SPARSE"],
        size=values["CONF_PADDLE_GRADIENT_NUM"],
        trainer_count=values["TRAINER_COUNT"],
        discovery=values["LAUNCHER_DISCOVERY"],
        peers=values["LAUNCHER_PEERS"],
        service=values["LAUNCHER_SERVICE"],
        selector=values["LAUNCHER_SELECTOR"],
        job_id=values["LAUNCHER_JOB_ID"],
        rank=values["LAUNCHER_RANK"],
        peer_timeout=values["LAUNCHER_PEER_TIMEOUT"],
        gang_port=values["LAUNCHER_GANG_PORT"],
        secret_file=values["LAUNCHER_SECRET_FILE"],
        stop_grace=values["LAUNCHER_STOP_GRACE"],
        volume_timeout=values["LAUNCHER_VOLUME_TIMEOUT"],
        workdir=values["LAUNCHER_WORKDIR"],
        termination_log=values["LAUNCHER_TERMINATION_LOG"],
        stay=values["LAUNCHER_STAY"],
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
    return environment.get("LAUNCHER_TERMINATION_LOG") or _TERMINATION_LOG


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
    if values["JOB_NAMESPACE"] is None:
        values["JOB_NAMESPACE"] = values["POD_NAMESPACE"] or _service_account_namespace() or "default"
    if values["LAUNCHER_WORKDIR"] is None:
        try:
            values["LAUNCHER_WORKDIR"] = os.getcwd()
        except FileNotFoundError:
            values["LAUNCHER_WORKDIR"] = "."  # found wanting with all the rest


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
    gang = size is None or size > 1
    by_name = discovery == "kubernetes" and "LAUNCHER_SELECTOR" not in given
    if gang and by_name and "JOB_NAME" not in given and not values["JOB_PATH"]:
        problems.append("JOB_NAME: unset: expected the Job's name, to find its pods by the label job-name")
    if gang and discovery == "static" and not values["LAUNCHER_PEERS"] and "LAUNCHER_PEERS" not in given:
        problems.append("LAUNCHER_PEERS: unset: expected addresses in rank order, since LAUNCHER_DISCOVERY is static")
    if gang and discovery == "dns" and not values["LAUNCHER_SERVICE"] and "LAUNCHER_SERVICE" not in given:
        problems.append("LAUNCHER_SERVICE: unset: expected a headless Service, since LAUNCHER_DISCOVERY is dns")
    if size and gang and discovery == "static" and values["LAUNCHER_PEERS"] and len(values["LAUNCHER_PEERS"]) != size:
        problems.append(
            f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected {size} addresses (CONF_PADDLE_GRADIENT_NUM), "
            f"found {len(values['LAUNCHER_PEERS'])}"
        )
    twice = sorted({peer for peer in values["LAUNCHER_PEERS"] if values["LAUNCHER_PEERS"].count(peer) > 1})
    if twice:
        problems.append(f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected each address once: {', '.join(twice)}")
    rank = values["LAUNCHER_RANK"]
    if size and rank is not None and rank >= size:
        name = "LAUNCHER_RANK" if "LAUNCHER_RANK" in given else "JOB_COMPLETION_INDEX"
        problems.append(f"{name}: {given[name]!r}: expected 0 to {size - 1}, since CONF_PADDLE_GRADIENT_NUM is {size}")
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


def _check_here(values: Mapping[str, Any], problems: list[str]) -> str:
    """What this pod must have. Gives the training address."""
    workdir = values["LAUNCHER_WORKDIR"]
    if not os.path.isdir(workdir):
        problems.append(f"LAUNCHER_WORKDIR: {workdir!r}: expected a folder that exists")
    elif not os.access(workdir, os.W_OK | os.X_OK):
        problems.append(f"LAUNCHER_WORKDIR: {workdir!r}: expected a folder that uid {os.getuid()} can write to")
    nic = values["CONF_PADDLE_NIC"]
    if (values["CONF_PADDLE_GRADIENT_NUM"] or 2) == 1:
        return values["POD_IP"] or "127.0.0.1"
    address = device_address(nic)
    if address is None:
        problems.append(
            f"CONF_PADDLE_NIC: {nic!r}: expected a network device with an address; here are {', '.join(device_names())}"
        )
    return address or ""


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
