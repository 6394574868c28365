"""What tests of `render` start from: the PaddleJobs of tests/paddlejobs, and what comes of them."""

from __future__ import annotations

import copy
import json
import tempfile
from types import SimpleNamespace
from typing import Any

import yaml
from kubernetes import client

from launcher import config
from launcher.config import JobConfig
from launcher.job import CephFSVolume, ClaimVolume, Volume
from launcher.job.from_yaml import Asked
from launcher.job.render import render
from tests.support.paths import PADDLEJOBS

Json = dict[str, Any]

FILES = sorted(path.name for path in PADDLEJOBS.glob("*.yaml") if "claim" not in path.name)
INJECTED = Asked("paddle-launcher-inject:latest", ("python3", "train.py"))
AS_IT_IS = Asked(None, ("python3", "train.py"))
_MODELS = {
    "Job": "V1Job",
    "Service": "V1Service",
    "Secret": "V1Secret",
    "PersistentVolume": "V1PersistentVolume",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
}
_QUANTITIES = ("limits", "requests", "capacity", "minResources")


def rendered(name: str, asked: Asked = INJECTED) -> list[Json]:
    """The objects that a file of tests/paddlejobs becomes."""
    return from_text(given(name), asked)


def from_text(text: str, asked: Asked = INJECTED) -> list[Json]:
    """The same for what a file would say."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return list(yaml.safe_load_all(render(file.name, asked, strict=False)))


def given(name: str) -> str:
    """What a file of tests/paddlejobs says."""
    return (PADDLEJOBS / name).read_text()


def of_kind(objects: list[Json], kind: str) -> list[Json]:
    return [made for made in objects if made["kind"] == kind]


def jobs(objects: list[Json]) -> dict[str, Json]:
    """The Jobs by name."""
    return {made["metadata"]["name"]: made for made in of_kind(objects, "Job")}


def pod(job: Json) -> Json:
    spec: Json = job["spec"]["template"]["spec"]
    return spec


def trains(job: Json) -> Json:
    """The container with the launcher."""
    return next(each for each in pod(job)["containers"] if "LAUNCHER_MODE" in str(each.get("env")))


def environment(job: Json, index: int = 0) -> dict[str, str]:
    """What the launcher of one pod is told, with what Kubernetes puts in."""
    name = job["metadata"]["name"]
    by_field = {"metadata.name": f"{name}-{index}-x7k2p", "status.podIP": "10.0.0.1", "metadata.uid": "uid-1"}
    told = {"JOB_COMPLETION_INDEX": str(index)}
    for entry in trains(job)["env"]:
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        told[entry["name"]] = entry["value"] if "value" in entry else by_field.get(path, "job-uid")
    return told


def variables(job: Json) -> dict[str, str]:
    """What it is told in so many words."""
    return {entry["name"]: entry["value"] for entry in trains(job)["env"] if "value" in entry}


def through_the_client(made: Json) -> Json:
    """The object as the official client's model of it sees it: without what that does not know."""
    api = client.ApiClient()
    seen = api.deserialize(SimpleNamespace(data=json.dumps(made)), _MODELS[made["kind"]])
    found: Json = api.sanitize_for_serialization(seen)
    return found


def is_modelled(made: Json) -> bool:
    return made["kind"] in _MODELS


def with_quantities_as_text(value: Any, within: str = "") -> Any:
    """As the client has them; Kubernetes takes numbers too."""
    if isinstance(value, dict):
        return {
            key: str(each)
            if within in _QUANTITIES and not isinstance(each, dict)
            else with_quantities_as_text(each, key)
            for key, each in copy.deepcopy(value).items()
        }
    return [with_quantities_as_text(each) for each in value] if isinstance(value, list) else value


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """What of `wanted` is not in `found`, by path. Lists may have more members, and keep the order of those wanted."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [place for key in wanted for place in missing(wanted[key], found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list):
        rest, lacking = iter(found), []
        for number, each in enumerate(wanted):
            if not any(not missing(each, other) for other in rest):
                lacking.append(f"{path}[{number}]")
        return lacking
    return [] if wanted == found else [path]


def read(job: Json, index: int = 0) -> JobConfig:
    return config.read(environment(job, index), {}, check_here=False)


# What both roles of the seeds' fifth example run as train.py: servers that listen, trainers that reach all of them, and
# try again as Paddle's do, since with gloo all start together.
SERVERS_AND_TRAINERS = """
import os, signal, socket, time
if os.environ["TRAINING_ROLE"] == "PSERVER":
    host, _, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rpartition(":")
    door = socket.create_server((host, int(port)))
    signal.pause()
servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
for server in servers:
    host, _, port = server.rpartition(":")
    for tries in range(100, 0, -1):
        try:
            socket.create_connection((host, int(port)), 5)
            break
        except ConnectionRefusedError:
            if tries == 1:
                raise
            time.sleep(0.1)
print("trainer", os.environ["PADDLE_TRAINER_ID"], "reached", len(servers), flush=True)
"""


LEAST: dict[str, Any] = {
    "job_name": "words",
    "entry_point": "python train.py",
    "runtime_image": "paddle-launcher:latest",
}


EVERYTHING: dict[str, Any] = LEAST | {
    "memory": "4G",
    "cpu_nums": 2,
    "pservers": 1,
    "trainers": 2,
    "gpu_nums": 1,
    "namespace": "training",
    "trainer_package_path": "/example",
    "cephfs_volume": CephFSVolume("10.0.0.1:6789,10.0.0.2:6789", path="/data"),
    "volumes": [
        ClaimVolume("/claim", "paddle", read_only=True),
        Volume("/nfs", {"nfs": {"server": "10.0.0.3", "path": "/"}}),
    ],
    "env": {"EPOCHS": 3, "TOKEN": {"secretKeyRef": {"name": "tokens", "key": "mine"}}},
    "node_selector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "shared_memory": "512M",
    "max_restarts": 1,
    "gang_scheduling": True,
    "queue": "research",
    "labels": {"team": "words"},
    "priority": "high",
    "service_account": "trainer",
    "launcher_image": "paddle-launcher-inject:latest",
}
