"""Helpers for benchmarks on a cluster: requirements, changes of manifests, API clients and watches."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from bench.jobs import now
from tests.e2e.cluster import Json

SERVICE = "paddle"
ENDLESS = ("--num_passes=100000",)
_NEEDED = {
    "KUBECONFIG": "the configuration of a cluster",
    "E2E_IMAGE": "an image of tests/e2e/Dockerfile that all of its nodes have",
}


def demand() -> None:
    """Exit with a message if something that the benchmark needs is missing."""
    missing = [f"{name} must name {what}" for name, what in _NEEDED.items() if not os.environ.get(name)]
    if not shutil.which("kubectl"):
        missing.append("kubectl must be on PATH")
    if missing:
        raise SystemExit(f"this benchmark runs on a cluster: {', '.join(missing)}")


def told_of_itself(job: Json) -> None:
    """Set the variables with a pod's name, address and uid, as the manifests in k8s/ do."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    _fields(container, POD_NAME="metadata.name", POD_IP="status.podIP", POD_UID="metadata.uid")


def found_by_name(job: Json) -> None:
    """Let the pods use DNS, as in k8s/job-indexed, without RBAC permissions and without a token."""
    told_of_itself(job)
    template = job["spec"]["template"]
    template["metadata"] = {"labels": {"app": SERVICE}}
    template["spec"] |= {"subdomain": SERVICE, "serviceAccountName": "nobody", "automountServiceAccountToken": False}
    container = template["spec"]["containers"][0]
    container["env"].append({"name": "LAUNCHER_SERVICE", "value": SERVICE})
    _fields(container, LAUNCHER_JOB_ID="metadata.labels['batch.kubernetes.io/controller-uid']")


def _fields(container: Json, **paths: str) -> None:
    container["env"] += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def service() -> Json:
    """Return the headless Service for the pods of `found_by_name`."""
    spec: Json = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": SERVICE}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": spec}


def core() -> Any:
    """Return a new API client for pods. Use a separate client in each thread."""
    return client.CoreV1Api(config.new_client_from_config())


def batch() -> Any:
    """Return a new API client for Jobs."""
    return client.BatchV1Api(config.new_client_from_config())


def slices() -> Any:
    """Return a new API client for EndpointSlices."""
    return client.DiscoveryV1Api(config.new_client_from_config())


class Events:
    """Watch one kind of object in a thread, and call `heed` with the time, type and object of each event."""

    def __init__(self, heed: Callable[[float, str, dict[str, Any]], None], listing: Any, *arguments: str) -> None:
        self._heed = heed
        self._listing = listing
        self._arguments = arguments
        self._watch = watch.Watch()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. The thread ends after the next event, or when this process ends."""
        self._closed = True
        self._watch.stop()

    def _follow(self) -> None:
        try:
            for event in self._watch.stream(self._listing, *self._arguments):
                self._heed(now(), event["type"], event["raw_object"])
        except HTTPError:
            if not self._closed:
                raise
