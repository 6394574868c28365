"""Declare each field of the configuration once, with its variable, parser, default and meaning.

docs/configuration.md has the same table; a test compares them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from launcher.base.bounds import MAX_JOB_ID, MAX_TIMEOUT
from launcher.config.declaration import Variable, declared, variable
from launcher.config.parsers import (
    absolute,
    by_role,
    count_or_gpus,
    folder_name,
    integer,
    matching,
    relative_folder,
    seconds,
    seconds_or_none,
    silence,
    sizes,
    stages,
    stall,
    switch,
    text,
)
from launcher.model import Shape

PORT = "a port, 1 to 65535"
COUNT = integer(1, 100_000)
UP_TO = f"at most {MAX_TIMEOUT:.0f}"


TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, kw_only=True)
class DiscoveryConfig:
    """How the peers are found, and the identity of this pod."""

    method: str = variable(
        "LAUNCHER_DISCOVERY",
        matching("kubernetes|dns|static"),
        None,
        "kubernetes, dns or static",
        "how peers are found; default: static with LAUNCHER_PEERS, dns with LAUNCHER_SERVICE, else kubernetes",
    )
    namespace: str = variable(
        "JOB_NAMESPACE", text, None, "a namespace", "where the pods are; default: the pod's own namespace"
    )
    selector: str = variable(
        "LAUNCHER_SELECTOR",
        text,
        None,
        "a label selector",
        "the labels of the job's pods, for discovery by the API server; default: job-name=$JOB_NAME",
    )
    service: str | None = variable(
        "LAUNCHER_SERVICE",
        matching(r"(trainer=[a-z0-9]([-a-z0-9]*[a-z0-9])?\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9.])?"),
        None,
        "the name of a headless Service; with roles trainer=NAME.SERVICE",
        "the pods' headless Service, for discovery by DNS; with roles: the trainers' Service, and the NAME of their"
        " Job or StatefulSet",
    )
    # the field has the peers of all roles in rank order
    peers: tuple[str, ...] = variable(
        "LAUNCHER_PEERS",
        by_role,
        None,
        "addresses in rank order, separated by commas; with roles trainer=A,B;pserver=C, and heter=D",
        "all members' addresses, for static discovery",
    )
    # the field has the rank among all members; the variable has the rank within the role
    rank: int | None = variable(
        "LAUNCHER_RANK",
        integer(0, 99_999),
        None,
        "a number from 0 to N-1",
        "this member's rank; with LAUNCHER_ROLE: its rank within its role; default: the Job index, the StatefulSet"
        " ordinal, or the order of addresses",
    )
    job_id: str | None = variable(
        "LAUNCHER_JOB_ID",
        matching(rf"[0-9A-Za-z][-0-9A-Za-z_.]{{0,{MAX_JOB_ID - 1}}}"),
        None,
        f"at most {MAX_JOB_ID} letters, digits, - _ .",
        "the job's identity; default: the uid of the pods' controller, if discovery knows it",
    )
    timeout: float = variable(
        "LAUNCHER_PEER_TIMEOUT",
        seconds,
        900.0,
        f"seconds, above 0, {UP_TO}",
        "how long to wait for peers, or for the end of another gang in the same folder, before exit code 75",
    )


@dataclass(frozen=True, kw_only=True)
class GangConfig:
    """How launchers talk to each other."""

    port: int = variable(
        "LAUNCHER_GANG_PORT",
        integer(1, 65535),
        None,
        PORT,
        "the port for messages between launchers; default: the first port after the pserver's ports (7168)",
    )
    secret_file: str | None = variable(
        "LAUNCHER_SECRET_FILE",
        absolute,
        None,
        "an absolute path",
        "a file with the job's secret (a mounted Secret); default: the launcher creates a secret on the volume",
    )
    tls_folder: str | None = variable(
        "LAUNCHER_TLS_DIR",
        absolute,
        None,
        "an absolute path",
        "a folder with tls.crt, tls.key and ca.crt (a mounted Secret of cert-manager), for TLS between all launchers; "
        "either all members have it or none",
    )
    silence: float = variable(
        "LAUNCHER_SILENCE",
        silence,
        120.0,
        f"seconds, 15 or more, {UP_TO}",
        "how long a peer may be silent, for example if the network is cut, before it counts as lost; also how long "
        "the volume may not answer during the training; the value must be the same on all members",
    )
    stall_timeout: float | Literal["auto"] = variable(
        "LAUNCHER_STALL_TIMEOUT",
        stall,
        "auto",
        f"auto, or seconds, 5 or more, {UP_TO}, or 0",
        "how long all trainers may print nothing before the job counts as stalled and evidence is written; the value"
        " must be the same on all members; auto: 10 times the longest pause of this job so far, at least 1.5 times"
        " LAUNCHER_SILENCE, once two passes are done; 0: no limit",
    )


@dataclass(frozen=True, kw_only=True)
class RestartConfig:
    """What happens after a failure."""

    max_restarts: int = variable(
        "LAUNCHER_MAX_RESTARTS",
        integer(0, 1_000_000),
        0,
        "a number, 0 or more",
        "how often the job restarts in the same pods if one of its processes fails; only the hub's value is used",
    )
    rejoin_timeout: float = variable(
        "LAUNCHER_REJOIN_TIMEOUT",
        seconds_or_none,
        300.0,
        f"seconds, 0 or more, {UP_TO}",
        "with LAUNCHER_MAX_RESTARTS: how long to wait for the replacement of a lost pod; 0: a lost pod ends the job",
    )
    settle: float = variable(
        "LAUNCHER_SETTLE",
        seconds,
        10.0,
        f"seconds, above 0, {UP_TO}",
        "elastic jobs: the job begins with fewer pods than it may have, once no pod has joined for so long",
    )
    shrink: str = variable(
        "LAUNCHER_SHRINK",
        matching("wait|now"),
        "wait",
        "wait or now",
        "elastic jobs: whether the others wait LAUNCHER_REJOIN_TIMEOUT for the replacement of a lost pod, or go on at "
        "once while enough pods are left",
    )
    backoff_limit: int | None = variable(
        "LAUNCHER_BACKOFF_LIMIT",
        integer(0, 1_000_000),
        None,
        "a number, 0 or more",
        "the Job's backoffLimit; if set, the launcher logs how many failed attempts the Job allows",
    )
    failure_policy: bool = variable(
        "LAUNCHER_FAILURE_POLICY",
        switch,
        False,
        "1 or 0",
        "1: the Job has a podFailurePolicy, so a failed attempt counts as one failed pod, not as N failed pods",
    )


@dataclass(frozen=True, kw_only=True)
class MonitoringConfig:
    """How other programs watch this launcher."""

    metrics_port: int | None = variable(
        "LAUNCHER_METRICS_PORT",
        integer(1, 65535),
        None,
        PORT,
        "the port on which Prometheus reads metrics of this launcher, without authentication; unset: no metrics",
    )
    report: bool = variable(
        "LAUNCHER_HTML_REPORT",
        switch,
        True,
        "1 or 0",
        "1: the hub writes output/report.html after each generation and at the end, in a child that needs 30 MiB or "
        "more",
    )
    log_format: str = variable(
        "LAUNCHER_LOG_FORMAT",
        matching("text|json|json-all"),
        "text",
        "text, json or json-all",
        "json: one JSON object per line of the launcher on standard error; json-all: also per line of the trainers, on "
        "standard output and standard error",
    )
    log_prefix: str = variable(
        "LAUNCHER_LOG_PREFIX",
        text,
        "",
        "a text, with {job}, {role}, {rank}, {pod} and {generation}",
        "what stands before each line of the trainers on standard output and standard error, such as '[rank {rank}] '; "
        "not in the log files",
    )


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """The configuration of one launcher. Its children inherit `environment`."""

    job_name: str | None = variable(
        "JOB_NAME", folder_name, None, "a name without /", "the job's name, and its folder on the volume"
    )
    job_path: str | None = variable(
        "JOB_PATH", absolute, None, "an absolute path", "where the shared volume is mounted; unset: no volume"
    )
    train_config_dir: str | None = variable(
        "TRAIN_CONFIG_DIR",
        relative_folder,
        None,
        "a folder in $JOB_PATH/$JOB_NAME",
        "the configuration folder, copied into the work directory; unset: nothing is copied",
    )
    nic: str = variable(
        "CONF_PADDLE_NIC",
        matching(r"[^\s/,]+"),
        "eth0",
        "the name of one network device",
        "the device that Paddle uses (--nics)",
    )
    port: int = variable("CONF_PADDLE_PORT", integer(1, 65535), 7164, PORT, "the first port of the pserver (--port)")
    ports_num: int = variable(
        "CONF_PADDLE_PORTS_NUM", integer(1, 1000), 2, "a number, 1 to 1000", "ports for dense parameters"
    )
    ports_num_sparse: int = variable(
        "CONF_PADDLE_PORTS_NUM_SPARSE", integer(0, 1000), 2, "a number, 0 to 1000", "ports for sparse parameters"
    )
    trainer_count: int | None = variable(
        "TRAINER_COUNT", COUNT, None, "a number, 1 or more", "threads or GPUs of a trainer (--trainer_count)"
    )
    mode: str | None = variable(
        "LAUNCHER_MODE",
        matching("v0|ps|collective|single"),
        None,
        "v0, ps, collective or single",
        "how Paddle trains; default: v0 without a command after --, else ps with LAUNCHER_PSERVERS above 0, "
        "else single for a job with one trainer, else collective",
    )
    role: str = variable(
        "LAUNCHER_ROLE",
        matching("trainer|pserver|heter"),
        None,
        "trainer, pserver or heter",
        "mode ps: the only role of this pod, in a job of N trainers, LAUNCHER_PSERVERS pservers and LAUNCHER_HETERS"
        " heter workers; default: trainer and pserver",
    )
    pservers: int | None = variable(
        "LAUNCHER_PSERVERS",
        integer(0, 100_000),
        None,
        "a number, 0 to N; with roles 1 or more",
        "mode ps: how many nodes run a parameter server beside their trainer; default: all nodes. With LAUNCHER_ROLE:"
        " how many pods are parameter servers, in addition to the N trainers",
    )
    heters: int = variable(
        "LAUNCHER_HETERS",
        integer(0, 100_000),
        0,
        "a number, 0 or more",
        "with LAUNCHER_ROLE: how many pods are heter workers, which compute the stages of the net from 2",
    )
    stages: tuple[int, ...] = variable(
        "LAUNCHER_STAGE",
        stages,
        (2,),
        "a number, 2 or more, or one number for each heter worker, separated by commas",
        "the stage of the net that a heter worker computes; 2,2,3: those of heter workers 0, 1 and 2",
    )
    trainers_per_node: int = variable(
        "LAUNCHER_TRAINERS_PER_NODE",
        count_or_gpus,
        1,
        "a number from 1 to 64, or gpus",
        "with a command after --: how many trainers each node runs; gpus: one per visible GPU",
    )
    allow_unused_shards: bool = variable(
        "LAUNCHER_ALLOW_UNUSED_SHARDS",
        switch,
        False,
        "1 or 0",
        "1: train even if the job's folder has more shards than the job has trainers; no trainer reads the other"
        " shards",
    )
    pod_name: str | None = variable(
        "POD_NAME", text, None, "the pod's name", "set by fieldRef metadata.name; default: the host name"
    )
    pod_ip: str | None = variable("POD_IP", text, None, "the pod's address", "set by fieldRef status.podIP")
    pod_uid: str | None = variable("POD_UID", text, None, "the pod's uid", "set by fieldRef metadata.uid")
    workdir: str = variable(
        "LAUNCHER_WORKDIR",
        absolute,
        None,
        "an absolute path",
        "the folder for copies of configuration and data, in which Paddle runs; default: the current directory",
    )
    volume_timeout: float = variable(
        "LAUNCHER_VOLUME_TIMEOUT",
        seconds,
        30.0,
        f"seconds, above 0, {UP_TO}",
        "how long the volume may take to answer at the start before exit code 74",
    )
    stop_grace: float = variable(
        "LAUNCHER_STOP_GRACE",
        seconds,
        20.0,
        f"seconds, above 0, {UP_TO}",
        "how long processes may take to end after the pod gets SIGTERM; keep it below terminationGracePeriodSeconds",
    )
    termination_log: str = variable(
        "LAUNCHER_TERMINATION_LOG",
        absolute,
        TERMINATION_LOG,
        "an absolute path",
        "where Kubernetes expects the termination message; written only if this file exists",
    )
    stay: bool = variable(
        "LAUNCHER_STAY",
        switch,
        False,
        "1 or 0",
        "1: after the job is complete, wait for SIGTERM; for pods that Kubernetes always starts again after they end",
    )
    discovery: DiscoveryConfig
    gang: GangConfig
    restarts: RestartConfig
    monitoring: MonitoringConfig
    shape: Shape  # in an elastic job, with as many trainers as it may have
    least: int  # the fewest nodes that train; equal to shape.trainers unless the job is elastic
    gpus: int  # the number of GPUs that are visible in this pod
    scratch: str | None  # a folder to use if the work directory is not writable
    host_name: str
    training_address: str
    environment: Mapping[str, str]
    given: Mapping[str, str]  # the variables of this file that are set, flags included. Secrets are in files, not here
    warnings: tuple[str, ...]

    @property
    def members(self) -> int:
        """The number of launchers in the gang."""
        return self.shape.size

    @property
    def trainers(self) -> int:
        """The number of trainers on all nodes."""
        return self.shape.trainers * self.trainers_per_node

    @property
    def is_elastic(self) -> bool:
        """Whether the number of nodes that train may change."""
        return self.least < self.shape.trainers

    @property
    def rejoins(self) -> bool:
        """Whether the members wait for a replacement if a pod is lost."""
        return self.members > 1 and self.restarts.max_restarts > 0 and self.restarts.rejoin_timeout > 0

    @property
    def job_folder(self) -> str | None:
        """The job's folder on the volume, or None without a volume."""
        return os.path.join(self.job_path, self.job_name or "") if self.job_path else None

    @property
    def output(self) -> str:
        """The folder for logs, status and models: on the volume if there is one, else local."""
        return os.path.join(self.job_folder or self.scratch or self.workdir, "output")

    def stage(self, number: int) -> int:
        """Return the stage of the heter worker with this number, 0 for the first."""
        return self.stages[min(number, len(self.stages) - 1)]

    def data_folder(self, trainer: int = 0) -> str:
        """Return the folder for the shard of one trainer of this pod. The first trainer has number 0."""
        return os.path.join(self.workdir, "data" if self.trainers_per_node == 1 else f"data_{trainer}")

    @property
    def own_name(self) -> str:
        """The name of this member in messages, before the roster is known."""
        return self.pod_name or self.host_name


# Variables without a field. Other fields are computed from these variables.
DERIVED = (
    Variable(
        "CONF_PADDLE_GRADIENT_NUM",
        sizes,
        None,
        "the number of nodes, 1 or more; LEAST:MOST, such as 2:5",
        "N: how many pods train; LEAST:MOST: an elastic job, whose number of pods may change",
    ),
    Variable("POD_NAMESPACE", text, None, "the pod's namespace", "set by fieldRef metadata.namespace"),
    Variable(
        "JOB_COMPLETION_INDEX",
        integer(0, 99_999),
        None,
        "a number from 0 to N-1",
        "set by Kubernetes in the pods of an Indexed Job: the rank",
    ),
)
SECTIONS = (JobConfig, DiscoveryConfig, GangConfig, RestartConfig, MonitoringConfig)
VARIABLES: tuple[Variable, ...] = (
    *(each for section in SECTIONS for _, each in declared(section)),
    *DERIVED,
)
