"""What the launcher's containers may do: the defaults for what their template leaves open.

A field that the user's template sets is kept. Other containers of the template are not changed.
"""

from __future__ import annotations

from typing import Any

from launcher.job.spec import Json

_NOT_ROOT = 65534


def main_security(pod: Json, container: Json) -> Json:
    """Return the security context of the container that trains or serves.

    No capability is dropped if the user may be root: images of 2016 run as root, and write to volumes of other users.
    """
    own = _given(container)
    both = _given(pod) | own
    defaults: dict[str, Any] = {}
    if not both.get("privileged") and not (own.get("capabilities") or {}).get("add"):
        defaults["allowPrivilegeEscalation"] = False
    if not both.get("privileged"):
        defaults["seccompProfile"] = {"type": "RuntimeDefault"}
    if _is_not_root(both):
        defaults |= {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    return {name: value for name, value in defaults.items() if name not in both} | own


def inject_security(pod: Json, container: Json) -> Json:
    """Return the security context of the init container that copies the launcher.

    Its image runs as root by default. If the pod or its main container must not, it runs as the user of the main
    container, or as a user without rights.
    """
    of_pod, of_main = _given(pod), _given(container)
    security: Json = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    if "seccompProfile" not in of_pod:
        security["seccompProfile"] = {"type": "RuntimeDefault"}
    if "runAsUser" not in of_pod and _is_not_root(of_pod | of_main):
        security |= {"runAsUser": of_main.get("runAsUser", _NOT_ROOT)}
    if _is_not_root(of_pod | security) and "runAsNonRoot" not in of_pod:
        security["runAsNonRoot"] = True
    return security


def _given(holder: Json) -> Json:
    """Return the fields of the security context of a pod or of a container. A null field counts as absent."""
    return {name: value for name, value in (holder.get("securityContext") or {}).items() if value is not None}


def _is_not_root(security: Json) -> bool:
    return bool(security.get("runAsUser") or (security.get("runAsNonRoot") and security.get("runAsUser") != 0))
