"""The variables of a gang's pods: what the launcher must be told, beside what the user has set."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from launcher.job.spec import COLLECTIVE, PS, SINGLE, JobSpec, Json, RoleSpec, SecretSpec
from launcher.model import BOTH

SECRET_FOLDER = "/var/run/paddle-launcher"
SECRET_KEY = "secret"
_GRACE = 30  # seconds: Kubernetes' own terminationGracePeriodSeconds
_LESS = 5  # for what the launcher has to do once its children have ended

_BY_FIELD = {
    "POD_NAME": "metadata.name",
    "POD_IP": "status.podIP",
    "POD_UID": "metadata.uid",
}
_IDENTITY = ("LAUNCHER_JOB_ID", "metadata.labels['batch.kubernetes.io/controller-uid']")

# What launcher/paddle/fleet.py tells programs, whatever the pod's variables say (a test compares them).
_TOLD_TRAINERS = {
    *("TRAINERS", "TRAINER_ID", "PADDLE_TRAINERS", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS"),
    *("PADDLE_TRAINER_ID", "PADDLE_GLOBAL_RANK", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE"),
    *("PADDLE_PORT", "PADDLE_CURRENT_ENDPOINT"),
    *("LAUNCHER_DATA_DIR", "LAUNCHER_SAVE_DIR", "LAUNCHER_RESUME_DIR", "LAUNCHER_GENERATION"),
}
_TOLD_ROLES = {"TRAINING_ROLE", "PADDLE_TRAINING_ROLE"}
TOLD = {
    SINGLE: _TOLD_TRAINERS,
    PS: _TOLD_TRAINERS | _TOLD_ROLES | {"PADDLE_PSERVERS_IP_PORT_LIST"},
    COLLECTIVE: _TOLD_TRAINERS
    | _TOLD_ROLES
    | {"PADDLE_MASTER", "PADDLE_NNODES", "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_SIZE"},
}


def variables(gang: JobSpec, role: RoleSpec) -> list[Json]:
    """The whole `env` of the role's main container. Ours come first, so that those of the user may refer to them."""
    own = user_variables(role)
    facts = _facts(gang, role)
    defaults = {name: entry for name, entry in _defaults(gang, role).items() if not set_by_user(role, name)}
    return [*facts.values(), *defaults.values(), *(entry for entry in own if entry["name"] not in facts)]


def clashes(gang: JobSpec, role: RoleSpec) -> list[tuple[int, str]]:
    """What the user has set and does not get: the place in `env`, and why."""
    facts = _facts(gang, role)
    found = []
    for place, entry in enumerate(user_variables(role)):
        name = entry["name"]
        if name in facts and entry != facts[name]:
            found.append((place, f"{name} follows from the job: {_shown(facts[name])} replaces {_shown(entry)}"))
        elif name in TOLD[gang.mode]:
            found.append((place, f"{name} is what the launcher tells the program itself: {_shown(entry)} is not used"))
    return found


def secret(gang: JobSpec) -> SecretSpec | None:
    """A new one, where the job needs one: on a volume that the launcher knows of it makes one itself.

    It has a name of its own: of a Secret that is deleted and made again under its name a node may still have the old
    one, and give that to pods.
    """
    has = [set_by_user(role, name) for role in gang.roles for name in ("JOB_PATH", "LAUNCHER_SECRET_FILE")]
    if gang.members == 1 or any(has):
        return None
    return SecretSpec(f"{given_secret(gang)}-{secrets.token_hex(3)}", secrets.token_hex(32))


def given_secret(gang: JobSpec) -> str:
    """What a Secret is called that the user makes for the job."""
    return f"{gang.name}-gang"


def user_variables(role: RoleSpec) -> list[Json]:
    """What the template has for the main container."""
    containers = role.template["spec"]["containers"]
    own: list[Json] = next(each for each in containers if each["name"] == role.container).get("env") or []
    return own


def set_by_user(role: RoleSpec, name: str) -> Json | None:
    """What the user has set this variable to, if they have."""
    return next((entry for entry in user_variables(role) if entry["name"] == name), None)


def _facts(gang: JobSpec, role: RoleSpec) -> Mapping[str, Json]:
    """What is so because the job is what it is: nobody can have another value."""
    told = {"CONF_PADDLE_GRADIENT_NUM": str(gang.trainers)}
    if role.kind != BOTH:
        told |= {"LAUNCHER_PSERVERS": str(gang.pservers), "LAUNCHER_ROLE": role.kind}
    if gang.service:
        told["LAUNCHER_SERVICE"] = gang.hub
    told |= {"LAUNCHER_BACKOFF_LIMIT": str(gang.backoff_limit), "LAUNCHER_FAILURE_POLICY": "1"}
    by_field = {name: _field(name, path) for name, path in _BY_FIELD.items()}
    return {name: _value(name, value) for name, value in told.items()} | by_field


def _defaults(gang: JobSpec, role: RoleSpec) -> Mapping[str, Json]:
    """What the user may say otherwise."""
    # On the nodes' own network a host name is the node's, and the hub's name is made of this one.
    told = {"JOB_NAME": role.job if gang.on_nodes(role) and role.kind == BOTH else gang.name}
    told |= {"LAUNCHER_MODE": gang.mode, "LAUNCHER_STOP_GRACE": str(_stop_grace(role.template))}
    told["LAUNCHER_MAX_RESTARTS"] = str(gang.max_restarts)
    if gang.secret:
        told["LAUNCHER_SECRET_FILE"] = f"{SECRET_FOLDER}/{SECRET_KEY}"
    if gang.mode == PS and gang.gloo:
        told["PADDLE_WITH_GLOO"] = str(gang.gloo)
    return {name: _value(name, value) for name, value in told.items()} | {_IDENTITY[0]: _field(*_IDENTITY)}


def _stop_grace(template: Mapping[str, Any]) -> int:
    told = template["spec"].get("terminationGracePeriodSeconds")
    return max(1, (_GRACE if told is None else told) - _LESS)


def _value(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _shown(entry: Json) -> str:
    if "value" in entry:
        return repr(entry["value"])
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    return f"the pod's {path}" if path else "a value from elsewhere"
