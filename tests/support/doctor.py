"""`paddle-launcher doctor` in a fake cluster: its manifests, and a kubelet that runs the program of its pod here."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from launcher.cli.main import perform
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.paths import K8S

IMAGE = "paddle-launcher:0.1.0"
PREFIX = "paddle-doctor-"


class Kubelet:
    """Makes and runs the pod of each Job of `doctor`, on this machine and with these programs in PATH.

    state: of the main container, in place of running it
    status: of the pod, in place of all
    events: about the pod
    pods: whether Jobs get pods
    """

    def __init__(self, cluster: FakeCluster, programs: Path) -> None:
        self.programs = programs
        self.state: Json | None = None
        self.status: Json | None = None
        self.events: list[Json] = []
        self.job_events: list[Json] = []
        self.pods = True
        self.jobs: list[Json] = []
        self.variables: dict[str, str] = {}
        self.inside: dict[str, Any] = {}  # changes of the questions
        self._cluster = cluster
        cluster.after = self._after

    def _after(self, verb: str, plural: str) -> None:
        if (verb, plural) == ("POST", "jobs"):
            known = {job["metadata"]["name"] for job in self.jobs}
            for (kind, name), job in list(self._cluster.objects.items()):
                if kind == "jobs" and name.startswith(PREFIX) and name not in known:
                    self.jobs.append(copy.deepcopy(job))
                    threading.Thread(target=self._serve, args=(job,), daemon=True).start()

    def _serve(self, job: Json) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        for event in self.job_events:
            self._event(uid, event)
        if not self.pods:
            return
        template = job["spec"]["template"]
        owner = {"kind": "Job", "name": name, "uid": uid, "controller": True}
        labels = {**template["metadata"]["labels"], "job-name": name}
        metadata = {"name": f"{name}-x", "namespace": "ns", "labels": labels, "ownerReferences": [owner]}
        pod = {"metadata": metadata, "spec": {**template["spec"], "nodeName": "node-1"}}
        pod["status"] = self.status or {"phase": "Pending"}
        self._cluster.put("pods", pod)
        for event in self.events:
            self._event(pod["metadata"]["uid"], event)
        if self.status is not None:
            return
        state = self.state or self._run(pod)
        container = {"name": "doctor", "image": template["spec"]["containers"][0]["image"], "state": state}
        phase = "Failed" if "terminated" in state else "Pending"
        pod["status"] = {"phase": phase, "containerStatuses": [container]}

    def _run(self, pod: Json) -> Json:
        (container,) = pod["spec"]["containers"]
        program, *arguments, asked = container["command"]
        assert Path(program).name == "python3"
        plain = {each["name"]: each["value"] for each in container["env"] if each.get("value")}
        asked = json.dumps(json.loads(asked) | self.inside)
        done = subprocess.run(
            [self.programs / "python3", *arguments, asked],
            env={"PATH": str(self.programs), **plain, **self.variables},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        self._cluster.logs[pod["metadata"]["name"]] = done.stdout.splitlines()
        return {"terminated": {"exitCode": done.returncode, "reason": "Completed", "message": done.stderr}}

    def _event(self, uid: str, event: Mapping[str, str]) -> None:
        made = {"metadata": {"name": f"event-{uid}"}, "involvedObject": {"uid": uid}, "type": "Warning", **event}
        self._cluster.put("events", made)


def program(folder: Path, name: str, text: str) -> None:
    """Put a shell script among the programs of the pods."""
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def manifests(name: str) -> list[Json]:
    """Return the objects of a folder of k8s with those of k8s/base, as kustomize shows them."""
    folders = [K8S / "base", K8S / name] if name != "single" else [K8S / name]
    files = [path for folder in folders for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document for path in files for document in yaml.safe_load_all(path.read_text())]


def workload_of(objects: list[Json]) -> Json:
    return next(each for each in objects if each["kind"] in ("Job", "StatefulSet"))


def container_of(objects: list[Json]) -> Json:
    found: Json = workload_of(objects)["spec"]["template"]["spec"]["containers"][0]
    return found


def set_variable(objects: list[Json], name: str, value: str | None) -> None:
    """Set a variable of the main container. None removes it."""
    container = container_of(objects)
    container["env"] = [each for each in container["env"] if each["name"] != name]
    if value is not None:
        container["env"].append({"name": name, "value": value})


def write(folder: Path, objects: list[Json]) -> str:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def doctor(*arguments: str, code: int = 0) -> dict[str, Json]:
    """Run `doctor -o json` in this process, and return the checks by name.

    Each check that is not good is the one that counts. A process would import the Kubernetes client each time.
    """
    with redirect_stdout(io.StringIO()) as printed:
        assert perform("doctor", ["-o", "json", *arguments], []) == code
    found = json.loads(printed.getvalue())["checks"]
    return {
        check["name"]: check for check in sorted(found, key=lambda check: check["state"] in ("ok", "unknown"))[::-1]
    }
