"""Render the PaddleJobs of tests/paddlejobs, and inspect the rendered objects."""

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
from launcher.job.from_yaml import RenderOptions
from launcher.job.image_commands import ImageCommands
from launcher.job.render import render
from tests.support.paths import PADDLEJOBS

Json = dict[str, Any]

EXAMPLES = sorted(path.name for path in PADDLEJOBS.glob("*.yaml") if "claim" not in path.name)
INJECTED = RenderOptions("an/inject:1", ImageCommands(("python3", "train.py")))
NOT_INJECTED = RenderOptions(None, ImageCommands(("python3", "train.py")))
_MODELS = {
    "Job": "V1Job",
    "Service": "V1Service",
    "Secret": "V1Secret",
    "PersistentVolume": "V1PersistentVolume",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
}
_QUANTITIES = ("limits", "requests", "capacity", "minResources")


def render_example(name: str, options: RenderOptions = INJECTED) -> list[Json]:
    """Return the objects that `render` makes from a file of tests/paddlejobs."""
    return render_text(example(name), options)


def render_text(text: str, options: RenderOptions = INJECTED) -> list[Json]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return list(yaml.safe_load_all(render(file.name, options, strict=False)))


def example(name: str) -> str:
    """Return the text of a file of tests/paddlejobs."""
    return (PADDLEJOBS / name).read_text()


def of_kind(objects: list[Json], kind: str) -> list[Json]:
    return [each for each in objects if each["kind"] == kind]


def jobs(objects: list[Json]) -> dict[str, Json]:
    """Return the Kubernetes Jobs by name."""
    return {job["metadata"]["name"]: job for job in of_kind(objects, "Job")}


def pod_spec(job: Json) -> Json:
    spec: Json = job["spec"]["template"]["spec"]
    return spec


def main_container(job: Json) -> Json:
    """Return the container that runs the launcher."""
    return next(each for each in pod_spec(job)["containers"] if "LAUNCHER_MODE" in str(each.get("env")))


def environment(job: Json, index: int = 0) -> dict[str, str]:
    """Return the environment of the launcher in one pod, with the values that Kubernetes fills in."""
    name = job["metadata"]["name"]
    by_field = {"metadata.name": f"{name}-{index}-x7k2p", "status.podIP": "10.0.0.1", "metadata.uid": "uid-1"}
    values = {"JOB_COMPLETION_INDEX": str(index)}
    for entry in main_container(job)["env"]:
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        values[entry["name"]] = entry["value"] if "value" in entry else by_field.get(path, "job-uid")
    return values


def plain_variables(job: Json) -> dict[str, str]:
    """Return the launcher's variables that have a `value`."""
    return {entry["name"]: entry["value"] for entry in main_container(job)["env"] if "value" in entry}


def through_the_model(original: Json) -> Json:
    """Return the object with only those fields that the official client's model contains."""
    api = client.ApiClient()
    parsed = api.deserialize(SimpleNamespace(data=json.dumps(original)), _MODELS[original["kind"]])
    known: Json = api.sanitize_for_serialization(parsed)
    return known


def has_model(each: Json) -> bool:
    return each["kind"] in _MODELS


def quantities_as_text(value: Any, field: str = "") -> Any:
    """Return the object with quantities as text, as in the client's model. Kubernetes accepts numbers, too."""
    if isinstance(value, dict):
        return {
            key: str(each) if field in _QUANTITIES and not isinstance(each, dict) else quantities_as_text(each, key)
            for key, each in copy.deepcopy(value).items()
        }
    return [quantities_as_text(each) for each in value] if isinstance(value, list) else value


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Return the paths of wanted values that `found` lacks. Lists of `found` may have more items between the wanted."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [lacking for key in wanted for lacking in missing(wanted[key], found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list):
        rest = iter(found)
        return [
            f"{path}[{index}]"
            for index, item in enumerate(wanted)
            if not any(not missing(item, other) for other in rest)
        ]
    return [] if wanted == found else [path]


def read_config(job: Json, index: int = 0) -> JobConfig:
    """Return the configuration that the launcher reads in one pod."""
    return config.read(environment(job, index), {}, check_here=False)


# A train.py for both roles: servers listen, trainers connect to all of them. They retry as Paddle's do, since with gloo
# servers and trainers start together.
SERVERS_AND_TRAINERS = """
import os, signal, socket, time
if os.environ["TRAINING_ROLE"] == "PSERVER":
    host, _, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rpartition(":")
    listening = socket.create_server((host, int(port)))
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


REQUIRED_PARAMETERS: dict[str, Any] = {
    "job_name": "words",
    "entry_point": "python train.py",
    "runtime_image": "an/image:1",
}


ALL_PARAMETERS: dict[str, Any] = REQUIRED_PARAMETERS | {
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
    "launcher_image": "an/inject:1",
}
