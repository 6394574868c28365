"""The pod template of a role's Job: the user's template, with the launcher in front of its command."""

from __future__ import annotations

import copy

from launcher.job.pod_env import SECRET_FOLDER, set_by_user, variables
from launcher.job.pod_security import inject_security, main_security
from launcher.job.spec import JOB_LABEL, PS, ROLE_LABEL, JobSpec, Json, RoleSpec
from launcher.model import BOTH, HETER, PSERVER, TRAINS

GROUP_NAME = "scheduling.k8s.io/group-name"
VOLCANO = "volcano"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

INJECT = "paddle-launcher"  # the name of the init container that copies the launcher, and of the volume for the copy
INJECT_FOLDER = "/launcher"  # the launcher's Python works in this folder only
SECRET_VOLUME = "paddle-launcher-secret"

_PADDLE_PORT, _PADDLE_PORTS = 7164, 4  # defaults of CONF_PADDLE_PORT, and of the two numbers of ports together


def pod_template(job_spec: JobSpec, role_spec: RoleSpec) -> Json:
    """Return the podTemplateSpec of the role's Job."""
    template: Json = {"metadata": {}} | copy.deepcopy(dict(role_spec.template))
    metadata, pod = template["metadata"], template["spec"]
    identity = {JOB_LABEL: job_spec.name, ROLE_LABEL: role_spec.role}
    metadata["labels"] = job_spec.own_labels | (metadata.get("labels") or {}) | identity
    annotations = _annotations(job_spec, role_spec)
    if annotations:
        metadata["annotations"] = annotations | (metadata.get("annotations") or {})
    pod["restartPolicy"] = "Never"
    if pod.get("automountServiceAccountToken") is None and not _may_need_token(pod, role_spec):
        pod["automountServiceAccountToken"] = False
    if job_spec.service:
        pod["subdomain"] = job_spec.service
    if job_spec.pod_group:
        pod["schedulerName"] = pod.get("schedulerName") or VOLCANO
    if job_spec.on_host_network(role_spec):
        pod["hostNetwork"] = True
        pod["dnsPolicy"] = pod.get("dnsPolicy") or "ClusterFirstWithHostNet"
    main = next(container for container in pod["containers"] if container["name"] == role_spec.container)
    launched = _with_launcher(job_spec, role_spec, main)
    launched["securityContext"] = main_security(pod, main)
    pod["containers"] = [launched if container is main else container for container in pod["containers"]]
    if job_spec.launcher_image:
        inject = _inject(job_spec.launcher_image, inject_security(pod, main))
        pod["initContainers"] = [inject, *(pod.get("initContainers") or [])]
        _append(pod, "volumes", {"name": INJECT, "emptyDir": {}})
    if job_spec.secret:
        _append(pod, "volumes", {"name": SECRET_VOLUME, "secret": {"secretName": job_spec.secret.name}})
    return template


def _annotations(job_spec: JobSpec, role_spec: RoleSpec) -> Json:
    """Return the default annotations. Annotations of the user's template replace them."""
    annotations = {GROUP_NAME: job_spec.pod_group.name} if job_spec.pod_group else {}
    if len(role_spec.template["spec"]["containers"]) > 1:
        annotations[DEFAULT_CONTAINER] = role_spec.container
    return annotations


def _may_need_token(pod: Json, role_spec: RoleSpec) -> bool:
    """Return whether the pods may use the API server. By default the launcher finds its peers by names.

    A program that uses the API server runs as a service account of its own.
    """
    discovery = (set_by_user(role_spec, "LAUNCHER_DISCOVERY") or {}).get("value")
    return bool(pod.get("serviceAccountName") or pod.get("serviceAccount") or discovery == "kubernetes")


def _with_launcher(job_spec: JobSpec, role_spec: RoleSpec, original: Json) -> Json:
    """Return the container with the launcher as its command. The launcher runs the original command."""
    program = f"{INJECT_FOLDER}/paddle-launcher" if job_spec.launcher_image else "paddle-launcher"
    launcher_fields: Json = {
        "command": [program],
        "args": ["run", "--", *role_spec.command],
        "env": variables(job_spec, role_spec),
    }
    first = {name: original[name] for name in ("name", "image") if name in original}
    container = (
        first | launcher_fields | {name: value for name, value in original.items() if name not in launcher_fields}
    )
    if job_spec.launcher_image:
        _append(container, "volumeMounts", {"name": INJECT, "mountPath": INJECT_FOLDER, "readOnly": True})
    if job_spec.secret:
        _append(container, "volumeMounts", {"name": SECRET_VOLUME, "mountPath": SECRET_FOLDER, "readOnly": True})
    if not container.get("readinessProbe"):
        container["readinessProbe"] = _readiness_probe(program)
    if job_spec.on_host_network(role_spec):
        known = {port.get("containerPort") for port in container.get("ports") or []}
        for port in _host_ports(job_spec, role_spec):
            if port not in known:
                _append(container, "ports", {"containerPort": port, "hostPort": port})
    return container


def _readiness_probe(program: str) -> Json:
    """Return a readiness probe.

    A liveness probe could kill a good pod: `alive` needs a writable work directory, which the user's image may not
    have. Other members detect a launcher that hangs (LAUNCHER_SILENCE).
    """
    probe = {"exec": {"command": [program, "alive"]}}
    return probe | {"initialDelaySeconds": 2, "timeoutSeconds": 5, "periodSeconds": 30}


def _inject(image: str, security: Json) -> Json:
    """Return the init container that copies the launcher to a volume."""
    return {
        "name": INJECT,
        "image": image,
        "securityContext": security,
        "volumeMounts": [{"name": INJECT, "mountPath": "/inject"}],
    }


def _host_ports(job_spec: JobSpec, role_spec: RoleSpec) -> list[int]:
    """Return the fixed ports of the role's pods. They become host ports: then no node runs two pods of the job."""
    paddle_port = _port(role_spec, "CONF_PADDLE_PORT", _PADDLE_PORT)
    gang_port = _port(role_spec, "LAUNCHER_GANG_PORT", paddle_port + _PADDLE_PORTS)
    ports = [gang_port]
    if role_spec.role == HETER:
        ports.append(paddle_port)
    elif role_spec.role == PSERVER or (role_spec.role == BOTH and job_spec.mode == PS):
        ports += [paddle_port, paddle_port + 1] if job_spec.gloo else [paddle_port]
    if role_spec.role in TRAINS:
        ports.append(gang_port + 1)
    return sorted(ports)


def _port(role_spec: RoleSpec, name: str, default: int) -> int:
    text = str((set_by_user(role_spec, name) or {}).get("value"))
    return int(text) if text.isdecimal() else default


def _append(fields: Json, name: str, item: Json) -> None:
    fields[name] = [*(fields.get(name) or []), item]
