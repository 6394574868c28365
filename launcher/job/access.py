"""The cluster of whoever calls, as kubectl would find it, or that of the own pod: objects in and out, errors in words.

Every call is bounded; what passes by itself (an API server that is away or restarts) is Unreachable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from launcher.base.host import SERVICE_ACCOUNT
from launcher.base.kube import CONNECT, READ, message, short, tried_once
from launcher.errors import Exit, Failure
from launcher.job.spec import Json

_KUBECONFIG = "~/.kube/config"
_SILENCE = 3600.0  # seconds that a program may print nothing before its log is asked for anew
_PASSING = (408, 429, 500, 502, 503, 504)
_PATCH = {"Content-Type": "application/merge-patch+json"}


@dataclass(frozen=True)
class Kind:
    """Where the API server has objects of a kind."""

    api: str
    plural: str
    namespaced: bool = True


KINDS: Mapping[str, Kind] = {
    "Job": Kind("batch/v1", "jobs"),
    "Pod": Kind("v1", "pods"),
    "Secret": Kind("v1", "secrets"),
    "Service": Kind("v1", "services"),
    "ConfigMap": Kind("v1", "configmaps"),
    "PersistentVolumeClaim": Kind("v1", "persistentvolumeclaims"),
    "PersistentVolume": Kind("v1", "persistentvolumes", namespaced=False),
    "PodGroup": Kind("scheduling.volcano.sh/v1beta1", "podgroups"),
}


class Unreachable(Failure):
    """The API server cannot be asked now; it may be later."""


class Refused(Failure):
    """The API server does not take it, by this HTTP status."""

    def __init__(self, status: int, code: Exit, message: str) -> None:
        super().__init__(code, message)
        self.status = status


class Access:
    """One namespace of a cluster: the one given, else that of the kubeconfig's context or of the own pod."""

    def __init__(self, namespace: str | None = None) -> None:
        settings, own = _settings()
        self.namespace = namespace or own or "default"
        self._host = settings.host
        self._api = client.ApiClient(tried_once(settings))

    def list(self, kind: str, selector: str) -> list[Json]:
        """The objects of the namespace with these labels."""
        found: list[Json] = self._json("GET", kind, query=[("labelSelector", selector)])["items"] or []
        return found

    def get(self, kind: str, name: str) -> Json | None:
        """One object, or None where there is none."""
        try:
            return self._json("GET", kind, name)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def create(self, made: Json) -> Json:
        """The object as the API server has it now. One that is there already is Refused, with status 409."""
        return self._json("POST", made["kind"], body=made)

    def patch(self, kind: str, name: str, change: Json) -> None:
        """Change these fields of an object."""
        self._json("PATCH", kind, name, body=change)

    def delete(self, kind: str, name: str, uid: str | None = None) -> None:
        """Delete it, with all that it owns. What is gone already is no error, nor is another one than that of `uid`."""
        only = {"preconditions": {"uid": uid}} if uid else {}
        try:
            self._json("DELETE", kind, name, body={"propagationPolicy": "Background"} | only)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def log(
        self, pod: str, container: str, query: Mapping[str, str], *, follow: bool = False, within: float = READ
    ) -> Iterator[bytes]:
        """Lines of a container's log, as the API server sends them: each after `within` seconds at most."""
        wanted = {"container": container, **query} | ({"follow": "true"} if follow else {})
        path = f"{self._path('Pod', pod)}/log"
        timeout = (min(CONNECT, within), _SILENCE if follow else within)
        response = self._call("GET", path, f"logs of pod {pod}", [*wanted.items()], None, timeout)
        rest = b""
        try:
            for chunk in response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        except (HTTPError, HTTPException, OSError) as error:
            raise Unreachable(Exit.TIMED_OUT, f"the log of pod {pod} was cut: {short(error)}") from None
        finally:
            response.close()
        if rest:
            yield rest

    def _json(self, verb: str, kind: str, name: str = "", query: Any = None, body: Json | None = None) -> Json:
        what = f"{kind} {name or ((body or {}).get('metadata') or {}).get('name') or 'of any name'}"
        response = self._call(verb, self._path(kind, name), what, query, body, (CONNECT, READ))
        try:
            found: Json = json.loads(response.data)
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            raise Unreachable(Exit.TIMED_OUT, f"the API server {self._host}: {short(error)}") from None
        return found

    def _path(self, kind: str, name: str = "") -> str:
        known = KINDS[kind]
        root = "/api" if "/" not in known.api else "/apis"
        within = f"/namespaces/{self.namespace}" if known.namespaced else ""
        return f"{root}/{known.api}{within}/{known.plural}" + (f"/{name}" if name else "")

    def _call(self, verb: str, path: str, what: str, query: Any, body: Any, timeout: tuple[float, float]) -> Any:
        headers = {"Accept": "application/json"} | (_PATCH if verb == "PATCH" else {})
        try:
            return self._api.call_api(
                path,
                verb,
                query_params=query or [],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=timeout,
            )
        except ApiException as error:
            raise self._sorted(error, what) from None
        except (HTTPError, HTTPException, OSError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Failure(
                    Exit.CONFIG,
                    f"the certificate of the API server {self._host} can't be trusted: {short(error)}: give the CA "
                    "that signed it (certificate-authority of the kubeconfig)",
                ) from None
            raise Unreachable(
                Exit.TIMED_OUT,
                f"the API server {self._host} cannot be reached: {short(error)}: does the cluster run, and is it the "
                "one that is meant (`kubectl config current-context`)?",
            ) from None

    def _sorted(self, error: ApiException, what: str) -> Failure:
        said = message(error)
        if error.status == 401:
            return Failure(
                Exit.DENIED,
                f"the API server {self._host} does not accept the credentials (HTTP 401: {said}): does "
                "`kubectl get pods` work here?",
            )
        if error.status == 403 and "cannot" in said:
            volumes = "persistentvolumes" in said
            advice = (
                "To create volumes is an admin's right: let one make a claim, and name that by ClaimVolume"
                if volumes
                else "Whoever submits and looks after jobs needs the rights of k8s/submitter, in that namespace"
            )
            return Failure(Exit.DENIED, f"the API server does not allow it (HTTP 403: {said}). {advice}")
        if error.status in _PASSING:
            return Unreachable(Exit.TIMED_OUT, f"the API server {self._host}: HTTP {error.status}: {said}")
        return Refused(error.status, Exit.CONFIG, f"{what}: the API server refuses it (HTTP {error.status}): {said}")


def _settings() -> tuple[client.Configuration, str | None]:
    """How to reach the cluster, and the namespace that goes with it."""
    settings = client.Configuration()
    told = os.environ.get("KUBECONFIG")
    file = told or _KUBECONFIG
    if told or os.path.exists(os.path.expanduser(file)):
        try:
            config.load_kube_config(file, client_configuration=settings, persist_config=False)
            return settings, config.list_kube_config_contexts(file)[1].get("context", {}).get("namespace")
        except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise Failure(
                Exit.CONFIG,
                f"KUBECONFIG: {file!r}: no cluster is known by that: {short(error)}: expected what kubectl takes",
            ) from None
    try:
        config.load_incluster_config(client_configuration=settings)
        with open(f"{SERVICE_ACCOUNT}/namespace", encoding="utf-8") as mounted:
            return settings, mounted.read().strip()
    except (config.ConfigException, OSError) as error:
        raise Failure(
            Exit.CONFIG,
            f"no cluster is known here: {short(error)}: expected KUBECONFIG or {_KUBECONFIG}, as kubectl has it, or a "
            "pod with the token of a service account",
        ) from None
