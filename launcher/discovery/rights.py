"""Describe the RBAC permission that discovery by the API server needs, and how to grant it."""

from __future__ import annotations

import re

_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: paddle-launcher, namespace: {namespace}}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: paddle-launcher, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: paddle-launcher}}
subjects:
- {subject}"""


def describe_denial(said: str, namespace: str) -> str:
    """Return the message for a 403: who lacks which permission, and the Role that grants it.

    said: the error message of the API server
    """
    user = _found(r'User "([^"]+)"', said)
    verb, resource = _found(r"cannot (\w+) resource", said) or "list", _found(r'resource "([^"]+)"', said) or "pods"
    account = re.fullmatch(r"system:serviceaccount:([^:]+):([^:]+)", user)
    if account:
        who = f"service account {account[2]} of namespace {account[1]}"
        subject = f"{{kind: ServiceAccount, name: {account[2]}, namespace: {account[1]}}}"
    else:
        who = f"user {user}" if user else "this pod"
        subject = f"{{kind: User, apiGroup: rbac.authorization.k8s.io, name: {user or '...'!r}}}"
    denied = f"the API server does not let {who} {verb} {resource} in namespace {namespace} (HTTP 403: {said}). "
    role = _ROLE.format(namespace=namespace, subject=subject)
    if account and account[1] != namespace:
        return (
            f"JOB_NAMESPACE is {namespace}, but this pod's namespace is {account[1]}: remove JOB_NAMESPACE from the "
            f"Job. {denied[0].upper()}{denied[1:]}If the job's pods are in namespace {namespace} all the same, create "
            f"the Role and the RoleBinding below:\n{role}"
        )
    return (
        f"{denied}Create the Role and the RoleBinding below, or use LAUNCHER_DISCOVERY=dns, which needs no RBAC "
        f"permissions:\n{role}"
    )


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""
