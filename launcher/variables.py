"""The variables of the environment contract: how the text of each becomes a value, its default, and what it means.

docs/configuration.md has the same table; a test compares them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launcher.model import BOTH, PSERVER, TRAINER

TERMINATION_LOG = "/dev/termination-log"
BY_ROLE = f"{TRAINER}="  # how LAUNCHER_SERVICE begins where there are roles
EACH_GPU = 0  # the number of trainers where there is to be one for each GPU
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # where Kubernetes mounts it


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


def _seconds_or_none(value: str) -> float:
    return 0.0 if re.fullmatch(r"0+(\.0+)?", value.strip()) else _seconds(value)


def _silence(value: str) -> float:
    """Members say something every 5 s: less than three times that would take a busy node for a lost one."""
    seconds = _seconds(value)
    if seconds < 15:
        raise ValueError
    return seconds


def _stall(value: str) -> float:
    """A trainer is silent for seconds by the mere import of Paddle."""
    seconds = _seconds_or_none(value)
    if 0 < seconds < 5:
        raise ValueError
    return seconds


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


def _count_or_gpus(value: str) -> int:
    return EACH_GPU if value.strip().lower() == "gpus" else _whole(1, 64)(value)


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


def _by_role(value: str) -> dict[str, tuple[str, ...]]:
    """`a,b` for members that all do the same; `trainer=a,b;pserver=c` where there are roles."""
    if "=" not in value:
        return {BOTH: _addresses(value)}
    parts = [part.strip().partition("=") for part in value.split(";") if part.strip()]
    found = {role.strip(): _addresses(addresses) for role, _, addresses in parts}
    if set(found) != {TRAINER, PSERVER} or len(parts) != len(found):
        raise ValueError
    return found


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
    Variable("CONF_PADDLE_GRADIENT_NUM", _COUNT, None, "the number of nodes, 1 or more", "N: how many pods train"),
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
        _by_role,
        None,
        "addresses in rank order, separated by commas; with roles trainer=A,B;pserver=C",
        "all members' addresses, for static discovery",
    ),
    Variable(
        "LAUNCHER_SERVICE",
        _matching(r"(trainer=[a-z0-9]([-a-z0-9]*[a-z0-9])?\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9.])?"),
        None,
        "the name of a headless Service; with roles trainer=NAME.SERVICE",
        "the pods' headless Service, for discovery by DNS; with roles that of the trainers, and the NAME of their Job "
        "or StatefulSet",
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
        "this member's rank, with LAUNCHER_ROLE within its role; default: Job index, StatefulSet ordinal or order of "
        "addresses",
    ),
    Variable(
        "LAUNCHER_PEER_TIMEOUT",
        _seconds,
        900.0,
        "seconds, above 0",
        "how long to wait for peers, or for the end of another gang in the same folder, before exit 75",
    ),
    Variable(
        "LAUNCHER_SILENCE",
        _silence,
        120.0,
        "seconds, 15 or more",
        "how long a peer may be silent, as in a cut of the network, before it counts as lost; while training the "
        "volume, too; the same on all members",
    ),
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
        TERMINATION_LOG,
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
        "LAUNCHER_MODE",
        _matching("v0|ps|collective|single"),
        None,
        "v0, ps, collective or single",
        "how Paddle trains; default: v0 without a command after --, else ps with LAUNCHER_PSERVERS above 0, single for "
        "a job of one, else collective",
    ),
    Variable(
        "LAUNCHER_PSERVERS",
        _whole(0, 100_000),
        None,
        "a number, 0 to N; with roles 1 or more",
        "how many of the nodes run a parameter server beside their trainer, in mode ps; default: all. With "
        "LAUNCHER_ROLE how many pods are parameter servers, besides the N that train",
    ),
    Variable(
        "LAUNCHER_ROLE",
        _matching("trainer|pserver"),
        None,
        "trainer or pserver",
        "this pod has one role only, in mode ps: N pods train, LAUNCHER_PSERVERS others serve; default: each does both",
    ),
    Variable(
        "LAUNCHER_TRAINERS_PER_NODE",
        _count_or_gpus,
        1,
        "a number from 1 to 64, or gpus",
        "how many trainers each node runs with a command after --; gpus: one for each GPU that the node sees",
    ),
    Variable(
        "LAUNCHER_MAX_RESTARTS",
        _whole(0, 1_000_000),
        0,
        "a number, 0 or more",
        "how often the job starts again in the same pods when a trainer or a pserver fails; the hub's counts",
    ),
    Variable(
        "LAUNCHER_REJOIN_TIMEOUT",
        _seconds_or_none,
        300.0,
        "seconds, 0 or more",
        "with LAUNCHER_MAX_RESTARTS: how long to wait for the pod that replaces a lost one; 0: a lost pod ends the job",
    ),
    Variable(
        "LAUNCHER_STALL_TIMEOUT",
        _stall,
        0.0,
        "seconds, 5 or more, or 0",
        "how long no trainer of the job may print anything before it counts as stalled, and what its processes do is "
        "written down; the same on all members; 0: for ever",
    ),
    Variable(
        "LAUNCHER_BACKOFF_LIMIT",
        _whole(0, 1_000_000),
        None,
        "a number, 0 or more",
        "the Job's backoffLimit, so that the launcher can say how many failed attempts the Job can take",
    ),
    Variable(
        "LAUNCHER_FAILURE_POLICY",
        _switch,
        False,
        "1 or 0",
        "1: the Job has a podFailurePolicy by which a failed attempt counts one pod, not N",
    ),
    Variable(
        "JOB_COMPLETION_INDEX",
        _whole(0, 99_999),
        None,
        "a number from 0 to N-1",
        "set by Kubernetes in the pods of an Indexed Job: the rank",
    ),
)
