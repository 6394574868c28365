"""The pods of a role: the user's template, with the launcher in front of its command."""

from __future__ import annotations

import copy

from launcher.job.pod_env import SECRET_FOLDER, set_by_user, variables
from launcher.job.spec import PS, JobSpec, Json, RoleSpec
from launcher.model import BOTH, PSERVER

JOB, ROLE = "paddle-launcher/job", "paddle-launcher/role"
MANAGED_BY = "app.kubernetes.io/managed-by"
GROUP_NAME = "scheduling.k8s.io/group-name"
VOLCANO = "volcano"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

BROUGHT = "paddle-launcher"  # the volume with the launcher, and the container that brings it
SECRET_VOLUME = "paddle-launcher-secret"
BROUGHT_TO = "/launcher"  # where it runs, and nowhere else

_PORT, _PORTS = 7164, 4  # defaults of CONF_PADDLE_PORT, and of the numbers of ports
_NOT_ROOT = 65534


def labels(gang: JobSpec) -> Json:
    """By these all that belongs to a job is found."""
    return {MANAGED_BY: "paddle-launcher", JOB: gang.name}


def template(gang: JobSpec, role: RoleSpec) -> Json:
    """The podTemplateSpec of the role's Job."""
    made: Json = {"metadata": {}} | copy.deepcopy(dict(role.template))
    metadata, spec = made["metadata"], made["spec"]
    metadata["labels"] = labels(gang) | (metadata.get("labels") or {}) | {JOB: gang.name, ROLE: role.kind}
    annotations = _annotations(gang, role)
    if annotations:
        metadata["annotations"] = annotations | (metadata.get("annotations") or {})
    spec["restartPolicy"] = "Never"
    if gang.service:
        spec["subdomain"] = gang.service
    if gang.group:
        spec["schedulerName"] = spec.get("schedulerName") or VOLCANO
    if gang.on_nodes(role):
        spec["hostNetwork"] = True
        spec["dnsPolicy"] = spec.get("dnsPolicy") or "ClusterFirstWithHostNet"
    spec["containers"] = [
        _launched(gang, role, each) if each["name"] == role.container else each for each in spec["containers"]
    ]
    if gang.launcher:
        spec["initContainers"] = [_bringing(gang.launcher, spec), *(spec.get("initContainers") or [])]
        _add(spec, "volumes", {"name": BROUGHT, "emptyDir": {}})
    if gang.secret:
        _add(spec, "volumes", {"name": SECRET_VOLUME, "secret": {"secretName": gang.secret.name}})
    return made


def _host_ports(gang: JobSpec, role: RoleSpec) -> list[int]:
    """What the role's pods listen on at fixed ports: of each there is one on a node."""
    first = _number(role, "CONF_PADDLE_PORT", _PORT)
    meeting = _number(role, "LAUNCHER_GANG_PORT", first + _PORTS)
    ports = [meeting]
    if role.kind == PSERVER or (role.kind == BOTH and gang.mode == PS):
        ports += [first, first + 1] if gang.gloo else [first]
    if role.kind != PSERVER:
        ports.append(meeting + 1)
    return sorted(ports)


def _annotations(gang: JobSpec, role: RoleSpec) -> Json:
    """Those that the user may have in the template, too."""
    found = {GROUP_NAME: gang.group.name} if gang.group else {}
    if len(role.template["spec"]["containers"]) > 1:
        found[DEFAULT_CONTAINER] = role.container
    return found


def _launched(gang: JobSpec, role: RoleSpec, given: Json) -> Json:
    """The container, with the launcher that runs what it ran."""
    program = f"{BROUGHT_TO}/paddle-launcher" if gang.launcher else "paddle-launcher"
    ours: Json = {"command": [program], "args": ["run", "--", *role.command], "env": variables(gang, role)}
    first = {name: given[name] for name in ("name", "image") if name in given}
    container = first | ours | {name: value for name, value in given.items() if name not in ours}
    if gang.launcher:
        _add(container, "volumeMounts", {"name": BROUGHT, "mountPath": BROUGHT_TO, "readOnly": True})
    if gang.secret:
        _add(container, "volumeMounts", {"name": SECRET_VOLUME, "mountPath": SECRET_FOLDER, "readOnly": True})
    if not container.get("readinessProbe"):
        container["readinessProbe"] = _readiness(program)
    if gang.on_nodes(role):
        known = {port.get("containerPort") for port in container.get("ports") or []}
        for port in _host_ports(gang, role):
            if port not in known:
                _add(container, "ports", {"containerPort": port, "hostPort": port})
    return container


def _readiness(program: str) -> Json:
    """No liveness: the answer comes by a file in the work directory, which is the image's own and may not be writable.
    A launcher that hangs is found by the other members (LAUNCHER_SILENCE)."""
    asks = {"exec": {"command": [program, "alive"]}}
    return asks | {"initialDelaySeconds": 2, "timeoutSeconds": 5, "periodSeconds": 30}


def _bringing(image: str, spec: Json) -> Json:
    """The init container that puts the launcher on a volume."""
    security: Json = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    of_pod = spec.get("securityContext") or {}
    if of_pod.get("runAsNonRoot") and of_pod.get("runAsUser") is None:
        security["runAsUser"] = _NOT_ROOT  # the user's images say themselves who they run as; this one is root's
    return {
        "name": BROUGHT,
        "image": image,
        "securityContext": security,
        "volumeMounts": [{"name": BROUGHT, "mountPath": "/inject"}],
    }


def _number(role: RoleSpec, name: str, default: int) -> int:
    text = str((set_by_user(role, name) or {}).get("value"))
    return int(text) if text.isdecimal() else default


def _add(where: Json, key: str, entry: Json) -> None:
    where[key] = [*(where.get(key) or []), entry]
