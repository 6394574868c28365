"""The environment variables of a job's pods: the launcher's variables, and the variables that the user has set."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from launcher.job.spec import COLLECTIVE, PS, SINGLE, JobSpec, Json, RoleSpec, SecretSpec
from launcher.model import BOTH

SECRET_FOLDER = "/var/run/paddle-launcher"
SECRET_KEY = "secret"
_GRACE_SECONDS = 30  # Kubernetes' default terminationGracePeriodSeconds
_SHUTDOWN_SECONDS = 5  # seconds that the launcher needs after its children have ended

_BY_FIELD = {
    "POD_NAME": "metadata.name",
    "POD_IP": "status.podIP",
    "POD_UID": "metadata.uid",
}
_JOB_ID = ("LAUNCHER_JOB_ID", "metadata.labels['batch.kubernetes.io/controller-uid']")

# Variables that launcher/paddle/fleet.py always sets for programs. A test compares both lists.
_SET_FOR_TRAINERS = {
    *("TRAINERS", "TRAINER_ID", "PADDLE_TRAINERS", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS"),
    *("PADDLE_TRAINER_ID", "PADDLE_GLOBAL_RANK", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE"),
    *("PADDLE_PORT", "PADDLE_CURRENT_ENDPOINT"),
    *("LAUNCHER_DATA_DIR", "LAUNCHER_SAVE_DIR", "LAUNCHER_RESUME_DIR", "LAUNCHER_GENERATION"),
}
_SET_FOR_ROLES = {"TRAINING_ROLE", "PADDLE_TRAINING_ROLE"}
SET_BY_LAUNCHER = {
    SINGLE: _SET_FOR_TRAINERS,
    PS: _SET_FOR_TRAINERS | _SET_FOR_ROLES | {"PADDLE_PSERVERS_IP_PORT_LIST"},
    COLLECTIVE: _SET_FOR_TRAINERS
    | _SET_FOR_ROLES
    | {"PADDLE_MASTER", "PADDLE_NNODES", "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_SIZE"},
}


def variables(job_spec: JobSpec, role_spec: RoleSpec) -> list[Json]:
    """Return the whole `env` of the role's main container.

    The launcher's variables come first, so that the user's variables can refer to them.
    """
    fixed = _fixed(job_spec, role_spec)
    defaults = [entry for name, entry in _defaults(job_spec, role_spec).items() if not set_by_user(role_spec, name)]
    return [*fixed.values(), *defaults, *(entry for entry in _user_variables(role_spec) if entry["name"] not in fixed)]


def replaced_variables(job_spec: JobSpec, role_spec: RoleSpec) -> list[tuple[int, str]]:
    """Return the user's variables that have no effect: the index in `env`, and the reason."""
    fixed = _fixed(job_spec, role_spec)
    replaced = []
    for index, entry in enumerate(_user_variables(role_spec)):
        name = entry["name"]
        if name in fixed and entry != fixed[name]:
            reason = f"{name} is set from the job: {_describe(fixed[name])} replaces {_describe(entry)}"
            replaced.append((index, reason))
        elif name in SET_BY_LAUNCHER[job_spec.mode]:
            replaced.append((index, f"{name} is set by the launcher: {_describe(entry)} is not used"))
    return replaced


def new_secret(job_spec: JobSpec) -> SecretSpec | None:
    """Return a new Secret for the gang, or None if the job needs none. On a volume, the launcher makes the secret.

    The name of the Secret is random, too: a node may still have an older Secret of the same name in its cache.
    """
    known = [set_by_user(role, name) for role in job_spec.roles for name in ("JOB_PATH", "LAUNCHER_SECRET_FILE")]
    if job_spec.most_pods == 1 or any(known):
        return None
    return SecretSpec(f"{user_secret_name(job_spec)}-{secrets.token_hex(3)}", secrets.token_hex(32))


def user_secret_name(job_spec: JobSpec) -> str:
    """Return the name that a Secret must have if the user has made it."""
    return f"{job_spec.name}-gang"


def set_by_user(role_spec: RoleSpec, name: str) -> Json | None:
    """Return the user's `env` entry for a variable, if there is one."""
    return next((entry for entry in _user_variables(role_spec) if entry["name"] == name), None)


def _user_variables(role_spec: RoleSpec) -> list[Json]:
    entries: list[Json] = role_spec.main_container.get("env") or []
    return entries


def _fixed(job_spec: JobSpec, role_spec: RoleSpec) -> Mapping[str, Json]:
    """Return the variables that are computed from the job. The user cannot change them."""
    values = {"CONF_PADDLE_GRADIENT_NUM": ":".join(map(str, job_spec.sizes or [job_spec.trainers]))}
    if role_spec.role != BOTH:
        values |= {"LAUNCHER_PSERVERS": str(job_spec.pservers), "LAUNCHER_ROLE": role_spec.role}
    if job_spec.heters:
        values["LAUNCHER_HETERS"] = str(job_spec.heters)
    if job_spec.service:
        values["LAUNCHER_SERVICE"] = job_spec.hub_address
    values |= {"LAUNCHER_BACKOFF_LIMIT": str(job_spec.backoff_limit), "LAUNCHER_FAILURE_POLICY": "1"}
    by_field = {name: _from_field(name, path) for name, path in _BY_FIELD.items()}
    return {name: _entry(name, value) for name, value in values.items()} | by_field


def _defaults(job_spec: JobSpec, role_spec: RoleSpec) -> Mapping[str, Json]:
    """Return the variables that the user may change."""
    # On the host network a pod has the host name of its node. So the launcher makes the hub's name from JOB_NAME.
    of_role = job_spec.on_host_network(role_spec) and role_spec.role == BOTH
    values = {"JOB_NAME": role_spec.name if of_role else job_spec.name}
    values |= {"LAUNCHER_MODE": job_spec.mode, "LAUNCHER_STOP_GRACE": str(_stop_grace(role_spec.template))}
    values["LAUNCHER_MAX_RESTARTS"] = str(job_spec.max_restarts)
    if job_spec.secret:
        values["LAUNCHER_SECRET_FILE"] = f"{SECRET_FOLDER}/{SECRET_KEY}"
    if job_spec.mode == PS and job_spec.gloo:
        values["PADDLE_WITH_GLOO"] = str(job_spec.gloo)
    return {name: _entry(name, value) for name, value in values.items()} | {_JOB_ID[0]: _from_field(*_JOB_ID)}


def _stop_grace(template: Mapping[str, Any]) -> int:
    grace = template["spec"].get("terminationGracePeriodSeconds")
    return max(1, (_GRACE_SECONDS if grace is None else grace) - _SHUTDOWN_SECONDS)


def _entry(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _describe(entry: Json) -> str:
    if "value" in entry:
        return repr(entry["value"])
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    return f"the pod's {path}" if path else "the value from valueFrom"
