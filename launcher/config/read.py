"""Read the variables, and check that they fit each other. No other file reads os.environ."""

from __future__ import annotations

import difflib
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.base.host import SERVICE_ACCOUNT, visible_gpus
from launcher.config.checks import LEAST, check_pod, contradictions, last_port, missing_program
from launcher.config.declaration import Variable, declared
from launcher.config.parsers import ONE_PER_GPU
from launcher.config.variables import (
    TERMINATION_LOG,
    VARIABLES,
    DiscoveryConfig,
    GangConfig,
    JobConfig,
    MonitoringConfig,
    RestartConfig,
)
from launcher.errors import ConfigProblems, Exit, Failure
from launcher.model import BOTH, COUNT_VARIABLE, ROLES, Shape

_SIMILAR = 0.87  # from 0 to 1: two names that differ by one or two letters are at least so similar


@dataclass(frozen=True)
class RoleMember:
    """The identity of a member of a job with roles. `role_member` reads it even if other variables are wrong."""

    job_path: str
    output: str
    job_id: str
    role: str
    number: int | None  # within the role, 0 for the first
    pod: str


_ROLE_MEMBER = ("JOB_PATH", "JOB_NAME", "LAUNCHER_ROLE", "LAUNCHER_JOB_ID")
_NUMBER = ("LAUNCHER_RANK", "JOB_COMPLETION_INDEX", "POD_NAME")
_DISCOVERY = ("LAUNCHER_DISCOVERY", "LAUNCHER_PEERS", "LAUNCHER_SERVICE", "LAUNCHER_SELECTOR")


def read(
    environment: Mapping[str, str],
    own_flags: Mapping[str, str],
    *,
    programs: Sequence[str] = (),
    check_here: bool = True,
) -> JobConfig:
    """Return the configuration, or raise ConfigProblems with one line per problem, and then the warnings.

    own_flags: values by the name of the variable; they override `environment`
    programs: the programs that this pod must have
    check_here: whether to check the devices, folders and `programs` of this pod. The caller sets it to False if the
        configuration may be for another pod.
    """
    given = {name: value for name, value in {**environment, **own_flags}.items() if value != ""}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for variable in VARIABLES:
        values[variable.name] = _value(variable, given, problems)
    single = not any(given.get(name) for name in ("JOB_NAME", "LAUNCHER_ROLE", *_DISCOVERY))
    _fill_in(values, given, single)
    problems += contradictions(values, given)
    warnings = _misspelt({**environment, **own_flags})
    training_address = ""
    if check_here:
        training_address = check_pod(values, problems)
        for name in programs:
            if missing := missing_program(name, environment):
                code, problem = missing
                if not problems:
                    raise ConfigProblems([problem], warnings, code)
                problems.append(problem)
    if problems:
        raise ConfigProblems(problems, warnings)
    role, shape = values["LAUNCHER_ROLE"] or BOTH, _shape(values)
    return JobConfig(
        **_fields(JobConfig, values) | {"role": role},
        discovery=DiscoveryConfig(
            **_fields(DiscoveryConfig, values)
            | {
                "peers": _in_rank_order(values["LAUNCHER_PEERS"] or {}),
                "rank": None if values["LAUNCHER_RANK"] is None else shape.rank(role, values["LAUNCHER_RANK"]),
            }
        ),
        gang=GangConfig(**_fields(GangConfig, values)),
        restarts=RestartConfig(**_fields(RestartConfig, values)),
        monitoring=MonitoringConfig(**_fields(MonitoringConfig, values)),
        shape=shape,
        least=values[LEAST],
        gpus=visible_gpus(environment) if check_here else 0,
        scratch=_scratch(values) if check_here else None,
        host_name=socket.gethostname(),
        training_address=training_address,
        environment=dict(environment),
        given={known.name: given[known.name] for known in VARIABLES if known.name in given},
        warnings=tuple(warnings),
    )


def _fields(section: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[variable.name] for name, variable in declared(section)}


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ


def variable_of_flag(flag: str) -> str | None:
    """Return LAUNCHER_PEER_TIMEOUT for `--launcher-peer-timeout`, or None if there is no such variable."""
    name = flag.lstrip("-").upper().replace("-", "_")
    return name if name in {v.name for v in VARIABLES if v.name.startswith("LAUNCHER_")} else None


def flag_of_variable(name: str) -> str:
    """Return `--launcher-peer-timeout` for LAUNCHER_PEER_TIMEOUT."""
    return f"--{name.lower().replace('_', '-')}"


def flags() -> list[str]:
    """Return the names of the launcher's own flags, such as `--launcher-peer-timeout`."""
    return [flag_of_variable(variable.name) for variable in VARIABLES if variable.name.startswith("LAUNCHER_")]


def termination_log(environment: Mapping[str, str]) -> str:
    """Return the path of the termination message, even if other variables are wrong."""
    return environment.get("LAUNCHER_TERMINATION_LOG") or TERMINATION_LOG


def role_member(environment: Mapping[str, str], own_flags: Mapping[str, str]) -> RoleMember | None:
    """Return the identity of this member, even if other variables are wrong.

    Return None if the job has no roles, if a needed variable is missing or wrong, or if this member's number is too
    high.
    """
    given = {name: value for name, value in {**environment, **own_flags}.items() if value != ""}
    problems: list[str] = []
    values = {
        known.name: _value(known, given, problems) for known in VARIABLES if known.name in (*_ROLE_MEMBER, *_NUMBER)
    }
    path, name, role, job_id = (values[variable] for variable in _ROLE_MEMBER)
    if problems or not (path and name and role and job_id):
        return None
    number = values["JOB_COMPLETION_INDEX"] if values["LAUNCHER_RANK"] is None else values["LAUNCHER_RANK"]
    count_variable = next(known for known in VARIABLES if known.name == COUNT_VARIABLE[role])
    sizes = _value(count_variable, given, [])
    count = sizes[1] if isinstance(sizes, tuple) else sizes
    if count and number is not None and number >= count:
        return None  # the corrected job has no member with this number, so no member would remove the failure mark
    output = os.path.join(path, name, "output")
    return RoleMember(path, output, job_id, role, number, values["POD_NAME"] or socket.gethostname())


def workdir(environment: Mapping[str, str]) -> str:
    """Return the work directory. Commands that ask a running launcher need it."""
    return environment.get("LAUNCHER_WORKDIR") or os.getcwd()


def job_folder(given: str | None, environment: Mapping[str, str]) -> str:
    """Return the job's folder: `given` if it is set, else JOB_PATH/JOB_NAME. Raises Failure if neither is set.

    given: the argument of the command
    """
    if given is not None:
        return given
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
    """Set the defaults that depend on other variables."""
    alone = (1, 1) if single and "CONF_PADDLE_GRADIENT_NUM" not in given else (None, None)
    values[LEAST], values["CONF_PADDLE_GRADIENT_NUM"] = values["CONF_PADDLE_GRADIENT_NUM"] or alone
    if values["LAUNCHER_DISCOVERY"] is None:
        by_service = "dns" if values["LAUNCHER_SERVICE"] else "kubernetes"
        values["LAUNCHER_DISCOVERY"] = "static" if values["LAUNCHER_PEERS"] else by_service
    if values["LAUNCHER_RANK"] is None:
        values["LAUNCHER_RANK"] = values["JOB_COMPLETION_INDEX"]
    if values["LAUNCHER_SELECTOR"] is None:
        values["LAUNCHER_SELECTOR"] = f"job-name={values['JOB_NAME']}"
    if values["LAUNCHER_GANG_PORT"] is None:
        values["LAUNCHER_GANG_PORT"] = last_port(values) + 1
    if values["LAUNCHER_TRAINERS_PER_NODE"] == ONE_PER_GPU:
        values["LAUNCHER_TRAINERS_PER_NODE"] = visible_gpus(given)
    if values["JOB_NAMESPACE"] is None:
        values["JOB_NAMESPACE"] = values["POD_NAMESPACE"] or _service_account_namespace() or "default"
    if values["LAUNCHER_WORKDIR"] is None:
        try:
            values["LAUNCHER_WORKDIR"] = os.getcwd()
        except FileNotFoundError:
            values["LAUNCHER_WORKDIR"] = "."  # the checks report this, together with all other problems


def _shape(values: Mapping[str, Any]) -> Shape:
    """Return the number of members of each role. Without roles, all members count as trainers."""
    of_roles = values["LAUNCHER_PSERVERS"], values["LAUNCHER_HETERS"]
    return Shape(values["CONF_PADDLE_GRADIENT_NUM"], *(of_roles if values["LAUNCHER_ROLE"] else ()))


def _in_rank_order(peers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(peer for role in (BOTH, *ROLES) for peer in peers.get(role, ()))


def _service_account_namespace() -> str | None:
    try:
        with open(f"{SERVICE_ACCOUNT}/namespace", encoding="utf-8") as file:
            return file.read().strip() or None
    except OSError:
        return None


def _scratch(values: Mapping[str, Any]) -> str | None:
    """Return a temporary folder, or None if it is not needed.

    It is needed if there is no volume and the work directory is not writable, as in many images.
    """
    if values["JOB_PATH"] or os.access(values["LAUNCHER_WORKDIR"], os.W_OK | os.X_OK):
        return None
    return os.path.join(tempfile.gettempdir(), f"paddle-launcher-{os.getpid()}")


def _misspelt(given: Mapping[str, str]) -> list[str]:
    """Return warnings about unknown names that are similar to an unset variable.

    Other unknown names are normal. For example, if there is a Service named `launcher`, Kubernetes sets
    LAUNCHER_SERVICE_HOST.
    """
    unset = {variable.name for variable in VARIABLES if not given.get(variable.name)}
    known = {variable.name for variable in VARIABLES}
    warnings = []
    for name in sorted(set(given) - known):
        if near := difflib.get_close_matches(name, unset, n=1, cutoff=_SIMILAR):
            warnings.append(f"{name} is ignored, because the launcher has no such variable: did you mean {near[0]}?")
    return warnings
