"""The cluster in which the commands work: the cluster that kubectl uses, or the cluster of the pod that runs them."""

from __future__ import annotations

import os

from launcher.base.host import SERVICE_ACCOUNT
from launcher.base.kube import KubeClient
from launcher.base.kube_credentials import Credentials, Kubeconfig, ServiceAccount

_KUBECONFIG = "~/.kube/config"
_EXPECTED = f"expected KUBECONFIG or {_KUBECONFIG}, as for kubectl, or a pod with the token of a service account"


def connect(namespace: str | None = None) -> KubeClient:
    """Return a client for this namespace. If None, use the namespace of kubectl's current context, or of this pod."""
    return KubeClient(_credentials(), namespace, _denied)


def is_configured() -> bool:
    """Return whether there are credentials for a cluster. Does not check whether they are right."""
    return _has_kubeconfig() or os.path.exists(os.path.join(SERVICE_ACCOUNT, "token"))


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(os.path.expanduser(_KUBECONFIG))


def _credentials() -> Credentials:
    if _has_kubeconfig():
        return Kubeconfig(os.environ.get("KUBECONFIG") or _KUBECONFIG)
    return ServiceAccount(_EXPECTED)


def _denied(said: str, namespace: str) -> str:
    if "persistentvolumes" in said:
        advice = "Only an admin may create volumes: ask the admin for a claim, and use the claim's name in ClaimVolume"
    else:
        advice = f"To submit and manage jobs, you need the RBAC permissions of k8s/submitter, in namespace {namespace}"
    return f"the API server does not allow this (HTTP 403: {said}). {advice}"
