"""Check that the values do not contradict each other, and that they fit this pod.

The parsers have checked each value by itself.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

from launcher.base.host import device_address, device_names
from launcher.config.parsers import BY_ROLE
from launcher.errors import CANNOT_RUN, NOT_FOUND, Failure
from launcher.model import BOTH, COUNT_VARIABLE, HETER, ROLES, TRAINS

# The key of the fewest nodes among the values. CONF_PADDLE_GRADIENT_NUM has the most nodes.
LEAST = "the least of CONF_PADDLE_GRADIENT_NUM"

# The variables by which other controllers say how many pods they run, and what to set for these pods.
_PODS_OF_OTHERS = {
    "LWS_GROUP_SIZE": (
        "LeaderWorkerSet",
        "LAUNCHER_PEERS=$(LWS_LEADER_ADDRESS),<the addresses of all workers> and LAUNCHER_RANK=$(LWS_WORKER_INDEX)",
    ),
    "PET_NNODES": ("Kubeflow Trainer", "LAUNCHER_SERVICE=<the name of the TrainJob>"),
}


def last_port(values: Mapping[str, Any]) -> int:
    """Return the highest port of the pserver."""
    ports: int = values["CONF_PADDLE_PORTS_NUM"] + values["CONF_PADDLE_PORTS_NUM_SPARSE"]
    first: int = values["CONF_PADDLE_PORT"]
    return first + ports - 1


def contradictions(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Return the contradictions between variables.

    values: the parsed values, including defaults, by the name of the variable
    given: the texts of all variables that are set
    """
    problems = []
    size, discovery = values["CONF_PADDLE_GRADIENT_NUM"], values["LAUNCHER_DISCOVERY"]
    if size == 1 and "CONF_PADDLE_GRADIENT_NUM" not in given:
        problems += _lone_pods_of_others(given)
    if size is None and "CONF_PADDLE_GRADIENT_NUM" not in given:
        problems.append("CONF_PADDLE_GRADIENT_NUM: unset: expected the number of nodes, the Job's parallelism")
    if values["JOB_PATH"] and "JOB_NAME" not in given:
        problems.append(
            "JOB_NAME: unset: expected a name, since JOB_PATH is set: the job's folder is JOB_PATH/JOB_NAME"
        )
    role, servers = values["LAUNCHER_ROLE"], values["LAUNCHER_PSERVERS"]
    problems += _role_problems(values, given)
    if values[LEAST] and values[LEAST] < size:
        problems += _elastic_problems(values, given)
    has_peers = size is None or size > 1 or role is not None
    by_job_name = discovery == "kubernetes" and "LAUNCHER_SELECTOR" not in given
    if role and by_job_name:
        problems.append("LAUNCHER_SELECTOR: unset: expected labels that the pods of all roles have")
    elif has_peers and by_job_name and "JOB_NAME" not in given and not values["JOB_PATH"]:
        problems.append("JOB_NAME: unset: expected the Job's name, to find its pods by the label job-name")
    if has_peers and discovery == "static" and not values["LAUNCHER_PEERS"] and "LAUNCHER_PEERS" not in given:
        problems.append("LAUNCHER_PEERS: unset: expected addresses in rank order, since LAUNCHER_DISCOVERY is static")
    if has_peers and discovery == "dns" and not values["LAUNCHER_SERVICE"] and "LAUNCHER_SERVICE" not in given:
        problems.append("LAUNCHER_SERVICE: unset: expected a headless Service, since LAUNCHER_DISCOVERY is dns")
    if has_peers and discovery == "static":
        problems += _peer_count_problems(values, given)
    peers = [peer for of_role in (values["LAUNCHER_PEERS"] or {}).values() for peer in of_role]
    if repeated := sorted({peer for peer in peers if peers.count(peer) > 1}):
        problems.append(
            f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected each address only once: {', '.join(repeated)}"
        )
    rank, count_variable = values["LAUNCHER_RANK"], COUNT_VARIABLE[role or BOTH]
    count = values[count_variable]
    if count and rank is not None and rank >= count:
        name = "LAUNCHER_RANK" if "LAUNCHER_RANK" in given else "JOB_COMPLETION_INDEX"
        problems.append(f"{name}: {given[name]!r}: expected 0 to {count - 1}, since {count_variable} is {count}")
    if size and servers and servers > size and not role:
        problems.append(
            f"LAUNCHER_PSERVERS: {servers}: expected at most {size}, one per node (CONF_PADDLE_GRADIENT_NUM)"
        )
    last = last_port(values)
    if last > 65535:
        problems.append(
            f"CONF_PADDLE_PORT: {values['CONF_PADDLE_PORT']}: expected all ports of the pserver below 65536"
        )
    elif values["CONF_PADDLE_PORT"] <= values["LAUNCHER_GANG_PORT"] <= last:
        problems.append(
            f"LAUNCHER_GANG_PORT: {values['LAUNCHER_GANG_PORT']}: expected a port that is not one of the pserver's "
            f"ports, {values['CONF_PADDLE_PORT']} to {last}"
        )
    elif values["LAUNCHER_GANG_PORT"] > 65535:
        problems.append("LAUNCHER_GANG_PORT: unset: expected a port, since no port is left after the pserver's ports")
    metrics_port = values["LAUNCHER_METRICS_PORT"]
    if metrics_port and (
        values["CONF_PADDLE_PORT"] <= metrics_port <= last or metrics_port == values["LAUNCHER_GANG_PORT"]
    ):
        problems.append(
            f"LAUNCHER_METRICS_PORT: {metrics_port}: expected a port that is neither one of the pserver's ports, "
            f"{values['CONF_PADDLE_PORT']} to {last}, nor the gang's port, {values['LAUNCHER_GANG_PORT']}"
        )
    return problems


def _role_problems(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Return the contradictions between LAUNCHER_ROLE and other values: pservers, mode, peers, service."""
    role, peers, service = values["LAUNCHER_ROLE"], values["LAUNCHER_PEERS"], values["LAUNCHER_SERVICE"] or ""
    problems = []
    if role and not values["LAUNCHER_PSERVERS"]:
        given_count = "unset" if values["LAUNCHER_PSERVERS"] is None else "0"
        problems.append(
            f"LAUNCHER_PSERVERS: {given_count}: expected the number of pservers, since LAUNCHER_ROLE is {role}"
        )
    if role and values["LAUNCHER_MODE"] not in (None, "ps"):
        problems.append(f"LAUNCHER_MODE: {values['LAUNCHER_MODE']!r}: expected ps, since LAUNCHER_ROLE is {role}")
    if peers and bool(role) == (BOTH in peers):
        problems.append(
            f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected trainer=ADDRESSES;pserver=ADDRESSES if "
            "LAUNCHER_ROLE is set, and only ADDRESSES if it is not set"
        )
    elif peers and role and (HETER in peers) != bool(values["LAUNCHER_HETERS"]):
        problems.append(
            f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected heter=ADDRESSES if and only if LAUNCHER_HETERS is "
            "above 0"
        )
    problems += _heter_problems(values, given)
    if service and bool(role) != service.startswith(BY_ROLE):
        problems.append(
            f"LAUNCHER_SERVICE: {service!r}: expected {BY_ROLE}NAME.SERVICE if LAUNCHER_ROLE is set (NAME is the "
            "trainers' Job or StatefulSet), and only SERVICE if LAUNCHER_ROLE is not set"
        )
    return problems


def _heter_problems(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Return the contradictions between LAUNCHER_HETERS, LAUNCHER_STAGE and the role."""
    role, heters, stages = values["LAUNCHER_ROLE"], values["LAUNCHER_HETERS"], values["LAUNCHER_STAGE"]
    problems = []
    if heters and not role:
        problems.append(
            f"LAUNCHER_HETERS: {heters}: expected LAUNCHER_ROLE in all pods, {', '.join(ROLES[:-1])} or {ROLES[-1]}: "
            "heter workers have pods of their own"
        )
    if role == HETER and not heters:
        problems.append("LAUNCHER_HETERS: 0: expected the number of heter workers, since LAUNCHER_ROLE is heter")
    if role == HETER and len(stages) > 1 and len(stages) != heters:
        problems.append(
            f"LAUNCHER_STAGE: {given['LAUNCHER_STAGE']!r}: expected one stage, or {heters} stages, one for each heter "
            "worker (LAUNCHER_HETERS)"
        )
    return problems


def _elastic_problems(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Return what an elastic job needs, and these variables do not allow."""
    sizes, problems = given["CONF_PADDLE_GRADIENT_NUM"], []
    why = f"since CONF_PADDLE_GRADIENT_NUM is {sizes}: an elastic job starts its processes again when its size changes"
    if not values["LAUNCHER_MAX_RESTARTS"]:
        problems.append(f"LAUNCHER_MAX_RESTARTS: {values['LAUNCHER_MAX_RESTARTS']}: expected 1 or more, {why}")
    if not values["LAUNCHER_REJOIN_TIMEOUT"]:
        problems.append(f"LAUNCHER_REJOIN_TIMEOUT: 0: expected more than 0, {why}")
    servers = values["LAUNCHER_PSERVERS"]
    if servers and not values["LAUNCHER_ROLE"] and servers > values[LEAST]:
        problems.append(
            f"LAUNCHER_PSERVERS: {servers}: expected at most {values[LEAST]}, the least of CONF_PADDLE_GRADIENT_NUM "
            f"({sizes}): each server runs beside a trainer"
        )
    if values["LAUNCHER_HETERS"]:
        problems.append(
            f"LAUNCHER_HETERS: {values['LAUNCHER_HETERS']}: expected no heter workers, or one number in "
            f"CONF_PADDLE_GRADIENT_NUM in place of {sizes}: a job with heter workers has a fixed size"
        )
    return problems


def _lone_pods_of_others(given: Mapping[str, str]) -> list[str]:
    """Return what another controller says, if it runs several pods and each of them would train alone."""
    problems = []
    for name, (controller, advice) in _PODS_OF_OTHERS.items():
        match = re.fullmatch(r"(?:\d+:)?(\d+)", given.get(name, ""))  # PET_NNODES may be MIN:MAX
        if match and int(match.group(1)) > 1:
            count = match.group(1)
            problems.append(
                f"{name}: {given[name]!r}: {controller} runs {count} pods, but each of them would train alone: set "
                f"CONF_PADDLE_GRADIENT_NUM={count}, {advice}; or CONF_PADDLE_GRADIENT_NUM=1 if each is to train alone"
            )
    return problems


def _peer_count_problems(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    return [
        f"LAUNCHER_PEERS: {given['LAUNCHER_PEERS']!r}: expected {values[COUNT_VARIABLE[role]]} addresses"
        f"{'' if role == BOTH else f' of the role {role}'} ({COUNT_VARIABLE[role]}), found {len(addresses)}"
        for role, addresses in (values["LAUNCHER_PEERS"] or {}).items()
        if values[COUNT_VARIABLE[role]] and len(addresses) != values[COUNT_VARIABLE[role]]
    ]


def check_pod(values: Mapping[str, Any], problems: list[str]) -> str:
    """Check the work directory, the GPUs, the certificates and the network device of this pod. Add to `problems`.

    Return the training address, or "" if the device has no address.
    """
    workdir = values["LAUNCHER_WORKDIR"]
    if not os.path.isdir(workdir):
        problems.append(f"LAUNCHER_WORKDIR: {workdir!r}: expected a folder that exists")
    elif values["JOB_PATH"] and not os.access(workdir, os.W_OK | os.X_OK):
        problems.append(f"LAUNCHER_WORKDIR: {workdir!r}: expected a folder that uid {os.getuid()} can write to")
    if not values["LAUNCHER_TRAINERS_PER_NODE"] and values["LAUNCHER_ROLE"] in (None, *TRAINS):
        problems.append("LAUNCHER_TRAINERS_PER_NODE: 'gpus': expected GPUs in this pod, but no GPU is visible")
    if values["LAUNCHER_TLS_DIR"]:
        problems += _wrong_certificates(values["LAUNCHER_TLS_DIR"])
    nic = values["CONF_PADDLE_NIC"]
    if values["CONF_PADDLE_GRADIENT_NUM"] == 1 and not values["LAUNCHER_ROLE"]:
        return values["POD_IP"] or "127.0.0.1"
    address = device_address(nic)
    if address is None:
        problems.append(
            f"CONF_PADDLE_NIC: {nic!r}: expected a device with an address; devices here: {', '.join(device_names())}"
        )
    return address or ""


def _wrong_certificates(folder: str) -> list[str]:
    from launcher.base import tls  # only here: it costs memory

    try:
        tls.load(folder)
    except Failure as failure:
        return [failure.message]
    return []


def missing_program(name: str, environment: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the exit code that a shell would return, and the problem. Return None if the program can be run."""
    path = environment.get("PATH", os.defpath)
    if shutil.which(name, path=path) is not None:
        return None
    if "/" not in name:
        where = f"on the PATH {path}: is it installed in this image?"
        return NOT_FOUND, f"{name}: command not found {where}"
    if not os.path.exists(name):
        return NOT_FOUND, f"{name}: no such file: is it in this image, or on a volume that is not mounted?"
    what = "is a folder" if os.path.isdir(name) else f"uid {os.getuid()} may not execute this file (chmod +x)"
    return CANNOT_RUN, f"{name}: cannot be run: {what}"
