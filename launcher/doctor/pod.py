"""The short-lived pod of `doctor`: it is like the pods of the job, runs `inside.py`, and is always removed.

A Job makes the pod. Its activeDeadlineSeconds ends the pod even if no node ever takes it, and its TTL then deletes it:
both work without this program. The activeDeadlineSeconds of a pod alone would begin only on a node.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.base import kube_pods
from launcher.base.kube import KubeClient
from launcher.base.kube_errors import ApiError, Transient
from launcher.doctor import inside
from launcher.errors import Failure
from launcher.job.outage import OutageLimit
from launcher.job.pod_template import GROUP_NAME
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import DOCTOR_LABEL, MANAGED_BY, Json
from launcher.job.state import end_of

SPARE_SECONDS = 60  # for which the Job may live longer than this program waits
_TTL_SECONDS = 60
_UNSCHEDULABLE_SECONDS = 30.0
_NO_POD_SECONDS = 20.0
_GONE_SECONDS = 20.0
_OUTAGE_SECONDS = 30.0
_POLL_SECONDS = 1.0
_MOST_BYTES = 1 << 18  # of the pod's log
_CONTAINER = "doctor"
_PREFIX = "paddle-doctor-"

# Reasons for which a container waits that do not pass by themselves.
_FOR_GOOD = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
_NOT_STARTED = ("StartError", "ContainerCannotRun")

_DROPPED = (
    *("containers", "initContainers", "ephemeralContainers", "volumes", "hostname", "subdomain", "schedulingGates"),
    *("readinessGates", "activeDeadlineSeconds", "restartPolicy", "terminationGracePeriodSeconds"),
    *("priorityClassName", "priority"),  # a look must not push other pods off their nodes
)
_OF_CONTAINER = (
    *("image", "imagePullPolicy", "workingDir", "resources", "securityContext", "volumeMounts", "env", "envFrom"),
)


@dataclass
class Visit:
    """What became of the pod.

    facts: what `inside.py` has printed, by question
    began: the last question that it has begun
    reason, message: why the pod did not run, in the words of Kubernetes, or "" if it did
    stage: where it failed: `create`, `admission`, `schedule`, `image`, `start`, `time`
    """

    facts: dict[str, Json] = field(default_factory=dict)
    began: str = ""
    stage: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""


def visit(client: KubeClient, job: Json, within: float) -> Visit:
    """Create the Job, wait until its pod has ended, and delete both. Raises Failure, KeyboardInterrupt."""
    name, may_exist = job["metadata"]["name"], True
    try:
        try:
            client.create(job)
        except ApiError as error:
            may_exist = isinstance(error, Transient)  # such as an answer that was lost
            if may_exist:
                raise
            return Visit(stage="create", message=error.message)
        return _wait(client, name, within)
    finally:
        if may_exist:
            _remove(client, name)


def new_name() -> str:
    """Return a new name for the Job of a visit."""
    return f"{_PREFIX}{secrets.token_hex(3)}"


def job_of(
    workload: Workload,
    name: str,
    asked: Json,
    *,
    within: float,
    account: bool,
    service: tuple[str, Mapping[str, str]] | None,
) -> Json:
    """Return the Job whose pod is like the pods of this Job or StatefulSet.

    asked: the argument of `inside.py`
    account: whether the service account of the pods exists
    service: the headless Service of the job and its selector, if it exists
    """
    template = copy.deepcopy(template_of(workload.seen))
    pod: Json = template.get("spec") or {}
    main = kube_pods.main_container(template)
    inject = [each for each in pod.get("initContainers") or [] if _brings_launcher(each, main, workload)]
    spec = {key: value for key, value in pod.items() if key not in _DROPPED}
    container = {key: main[key] for key in _OF_CONTAINER if main.get(key) is not None}
    container |= {"name": _CONTAINER, "env": _variables(main), "envFrom": _optional_sources(main)}
    container |= {"command": [*_python(workload), "-c", _program(), json.dumps(asked)]}
    if ports := [{**port, "name": f"p{at}"} for at, port in enumerate(main.get("ports") or []) if port.get("hostPort")]:
        container["ports"] = ports
    labels = {DOCTOR_LABEL: workload.job[:63].rstrip("-.")}
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    spec |= {"initContainers": inject, "volumes": _volumes(pod, [container, *inject])}
    if service and not _is_selected(workload, service[1]):
        labels = dict(service[1]) | labels
        spec |= {"hostname": name, "subdomain": service[0]}
    if not account:
        spec.pop("serviceAccount", None)
        spec |= {"serviceAccountName": "default", "automountServiceAccountToken": False}
    annotations = {
        key: value for key, value in (template["metadata"].get("annotations") or {}).items() if key != GROUP_NAME
    }
    seconds = int(within) + SPARE_SECONDS
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {MANAGED_BY: "paddle-launcher", DOCTOR_LABEL: workload.job[:63].rstrip("-.")},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": _TTL_SECONDS,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


def program_of(workload: Workload) -> str:
    """Return how the pods call the launcher."""
    first = workload.words[0] if workload.words else ""
    return first if os.path.basename(first) == "paddle-launcher" else "paddle-launcher"


def _python(workload: Workload) -> list[str]:
    """Return the Python for the visit: that of an injected launcher, else that of the image."""
    program = program_of(workload)
    injected = "/" in program and any(
        program.startswith(f"{mount.get('mountPath', '').rstrip('/')}/")
        for mount in kube_pods.main_container(template_of(workload.seen)).get("volumeMounts") or []
    )
    return [os.path.join(os.path.dirname(program), "bin", "python3") if injected else "python3", "-I"]


def _program() -> str:
    return Path(inside.__file__).read_text(encoding="utf-8")


def _brings_launcher(init: Json, main: Json, workload: Workload) -> bool:
    """Return whether this init container copies the launcher. All others may have effects, and are left out."""
    program = program_of(workload)
    volumes = {
        mount.get("name")
        for mount in main.get("volumeMounts") or []
        if program.startswith(f"{mount.get('mountPath', '').rstrip('/')}/")
    }
    return any(mount.get("name") in volumes for mount in init.get("volumeMounts") or [])


def _variables(main: Json) -> list[Json]:
    """Return the variables. Those of a Secret or ConfigMap may be missing: another check reports them."""
    found = copy.deepcopy(main.get("env") or [])
    for entry in found:
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if isinstance((entry.get("valueFrom") or {}).get(kind), dict):
                entry["valueFrom"][kind]["optional"] = True
        path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
        if "controller-uid" in path or "job-completion-index" in path:
            entry.pop("valueFrom")
    return [*found]


def _optional_sources(main: Json) -> list[Json]:
    found = copy.deepcopy(main.get("envFrom") or [])
    for source in found:
        for kind in ("configMapRef", "secretRef"):
            if isinstance(source.get(kind), dict):
                source[kind]["optional"] = True
    return [*found]


def _volumes(pod: Json, containers: list[Json]) -> list[Json]:
    """Return the volumes that these containers mount. One of a StatefulSet's claim templates becomes an emptyDir."""
    wanted = dict.fromkeys(mount["name"] for each in containers for mount in each.get("volumeMounts") or [])
    known = {volume["name"]: copy.deepcopy(volume) for volume in pod.get("volumes") or []}
    found = [known.get(name, {"name": name, "emptyDir": {}}) for name in wanted]
    for volume in found:
        for kind in ("secret", "configMap"):
            if isinstance(volume.get(kind), dict):
                volume[kind]["optional"] = True
    return found


def _is_selected(workload: Workload, labels: Mapping[str, str]) -> bool:
    """Return whether the launchers of the job would take a pod with these labels for one of theirs."""
    selector = workload.value("LAUNCHER_SELECTOR")
    parts = [part.strip() for part in selector.split(",") if part.strip()]
    return bool(parts) and all(part in {f"{key}={value}" for key, value in labels.items()} for part in parts)


def _wait(client: KubeClient, name: str, within: float) -> Visit:
    began, outage, unschedulable_since, pod = time.monotonic(), OutageLimit(_OUTAGE_SECONDS), None, None
    while True:
        now = time.monotonic()
        try:
            pod = next(iter(client.list("Pod", f"job-name={name}")), None)
            outage.answered()
            if pod is None and now - began > 3 and (message := _refusal(client, name)):
                return Visit(stage="admission", message=message)
            if pod and _is_over(pod):
                return _read(client, pod)
        except Failure as failure:
            outage.bear(failure)
        if pod:
            condition = _not_scheduled(pod)
            unschedulable_since = (unschedulable_since or now) if condition else None
            if unschedulable_since and now - unschedulable_since > min(_UNSCHEDULABLE_SECONDS, within):
                return Visit(stage="schedule", message=str(condition))
            if stuck := _stuck(client, pod):
                return stuck
        if pod is None and now - began > min(_NO_POD_SECONDS, within):
            return Visit(stage="admission", message="the Job has made no pod, and no event says why")
        if now - began > within:
            return _late(client, pod, within)
        time.sleep(_POLL_SECONDS)


def _is_over(pod: Json) -> bool:
    return end_of(pod) is not None or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _not_scheduled(pod: Json) -> str:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "not scheduled")
    return ""


def _stuck(client: KubeClient, pod: Json) -> Visit | None:
    """Return why a container waits, if it waits for good."""
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _FOR_GOOD:
            stage = "start" if waiting["reason"] == "CreateContainerConfigError" else "image"
            said = str(waiting.get("message") or "")
            if waiting["reason"] == "ImagePullBackOff" and "ErrImagePull" not in said:  # before Kubernetes 1.31
                pulls = [text for text in _warnings(client, pod) if "Failed to pull" in text]
                said = pulls[-1] if pulls else said
            return Visit(stage=stage, reason=str(container.get("image") or ""), message=said, node=_node(pod))
    return None


def _read(client: KubeClient, pod: Json) -> Visit:
    seen = Visit(node=_node(pod))
    end = end_of(pod) or {}
    if end.get("reason") in _NOT_STARTED:
        seen.stage, seen.reason, seen.message = "start", str(end["reason"]), str(end.get("message") or "")
        return seen
    for init in (pod.get("status") or {}).get("initContainerStatuses") or []:
        ended = (init.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            seen.stage, seen.reason = "start", str(ended.get("reason") or "")
            message = " ".join(str(ended.get("message") or "").split())
            seen.message = f"init container {init.get('name')} ended with {ended['exitCode']}: {message}".rstrip(": ")
            return seen
    _read_log(client, pod, seen)
    if not seen.facts:
        seen.stage, seen.message = "start", kube_pods.describe_end(pod) or "the pod ended without a word"
    return seen


def _read_log(client: KubeClient, pod: Json, seen: Visit) -> None:
    for line in client.log(pod["metadata"]["name"], _CONTAINER, {"limitBytes": str(_MOST_BYTES)}, within=10):
        mark, _, text = line.decode(errors="replace").partition(" ")
        if mark != inside.MARK:
            continue
        try:
            said: Any = json.loads(text)
            what, fields = str(said["what"]), said["fields"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        seen.began = what
        if said.get("state") == "found" and isinstance(fields, dict):
            seen.facts[what] = fields


def _late(client: KubeClient, pod: Json | None, within: float) -> Visit:
    """Return what the pod waits for, after the time limit."""
    seen = Visit(stage="time", node=_node(pod) if pod else "")
    if pod is None:
        return seen
    seen.message = kube_pods.describe_wait(pod)
    if "running" in (kube_pods.main_container_status(pod).get("state") or {}):
        try:
            _read_log(client, pod, seen)
        except ApiError as error:
            seen.message = error.fact
    elif events := _warnings(client, pod):
        seen.message = events[-1]
    return seen


def _refusal(client: KubeClient, name: str) -> str:
    """Return why the Job could not make its pod, or ""."""
    job = client.get("Job", name)
    if job is None:
        return "the Job was deleted"
    return next(iter(reversed(_warnings(client, job))), "")


def _warnings(client: KubeClient, about: Json) -> list[str]:
    """Return the warnings about an object, the newest last. Without the right to list events there are none."""
    try:
        events = client.events(about["metadata"]["uid"])
    except ApiError:
        return []
    events = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")))
    return [" ".join(str(event.get("message")).split()) for event in events if event.get("type") == "Warning"]


def _node(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _remove(client: KubeClient, name: str) -> None:
    """Delete the Job, and wait for some seconds until its pod is gone. A failure is printed: the Job has a deadline."""
    with _unbroken():
        try:
            client.delete("Job", name)
            until = time.monotonic() + _GONE_SECONDS
            while client.list("Pod", f"job-name={name}") and time.monotonic() < until:
                time.sleep(_POLL_SECONDS / 2)
        except Failure as failure:
            print(
                f"doctor: Job {name} could not be deleted: {failure.message}\n"
                f"doctor: Kubernetes deletes it itself when its time is over; or: kubectl -n {client.namespace} delete "
                f"job {name}",
                file=sys.stderr,
            )


@contextmanager
def _unbroken() -> Iterator[None]:
    """Ignore signals that would interrupt the removal, which has an end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
