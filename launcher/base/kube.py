"""Call the API server. Each call has a timeout. The client never retries.

If a call fails, it raises an ApiError. The class of the ApiError shows what the caller can do.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3 import Retry
from urllib3.exceptions import HTTPError

from launcher.base.kube_credentials import Credentials
from launcher.base.kube_errors import (
    ApiError,
    BadCredentials,
    Denied,
    Expired,
    Refused,
    Transient,
    is_transient,
    one_line,
    server_message,
)
from launcher.base.kube_pods import Json
from launcher.errors import Exit

_CONNECT, _READ = 5.0, 30.0  # seconds
_WATCH = 300  # seconds after which the server ends a watch
_WATCH_SILENCE = 90.0  # seconds without data after which a watch has failed: the server sends a bookmark every minute
_LOG_SILENCE = 3600.0  # the same for a log that is followed: a program may print nothing for a long time
_PAGE = 500  # objects of one page of a list, as in kubectl
_LIST_TRIES = 3
_PATCH = {"Content-Type": "application/merge-patch+json"}
_PACKED = {"Accept-Encoding": "gzip"}  # a list of hundreds of pods then has a twentieth of its size

_Timeout = tuple[float, float]  # seconds to connect, and seconds between two reads


@dataclass(frozen=True)
class Kind:
    """Where the API has the objects of one kind."""

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
    "StatefulSet": Kind("apps/v1", "statefulsets"),
    "PodGroup": Kind("scheduling.volcano.sh/v1beta1", "podgroups"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "Event": Kind("v1", "events"),
}


class KubeClient:
    """A client for the objects of one namespace. All calls may raise ApiError.

    namespace: if None, the client uses the namespace of the credentials, or `default`
    denied: takes the text of the API server and the namespace; returns the message for a 403
    on_answer: called after each answer that is not an error
    """

    def __init__(
        self,
        credentials: Credentials,
        namespace: str | None,
        denied: Callable[[str, str], str],
    ) -> None:
        self.on_answer: Callable[[], None] = lambda: None
        self._credentials = credentials
        self._denied = denied
        self.connect()
        self.namespace = namespace or credentials.namespace() or "default"

    def connect(self) -> None:
        """Read the credentials. The caller must call this again if the credentials may have changed. Raises Failure."""
        settings = self._credentials.read()
        settings.retries = Retry(total=0)  # each retry of the library would wait for the whole timeout again
        self._host = settings.host
        self._api = client.ApiClient(settings)

    def get(self, kind: str, name: str) -> Json | None:
        """Return one object, or None if it does not exist."""
        try:
            return self._json("GET", self._path(kind, name), f"{kind} {name}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def list_versioned(self, kind: str, selector: str) -> tuple[list[Json], str]:
        """Return all objects with these labels, and the version from which `watch` can continue."""
        query, what = {"labelSelector": selector}, f"{kind}s with the labels {selector}"
        found = self._json("GET", self._path(kind), what, query=query, headers=_PACKED)
        return found.get("items") or [], (found.get("metadata") or {}).get("resourceVersion", "")

    def list(self, kind: str, selector: str) -> list[Json]:
        """Return all objects with these labels."""
        return self.list_versioned(kind, selector)[0]

    def list_all(self, kind: str, *, everywhere: bool = False) -> builtins.list[Json]:
        """Return all objects of the namespace, or of all namespaces, read in pages."""
        for tries_left in reversed(range(_LIST_TRIES)):
            try:
                return [each for page in self._pages(kind, everywhere) for each in page]
            except Expired:  # the next page is of a version that the API server has forgotten
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _pages(self, kind: str, everywhere: bool) -> Iterator[builtins.list[Json]]:
        path, where = self._path(kind, everywhere=everywhere), "all namespaces" if everywhere else self.namespace
        query = {"limit": str(_PAGE)}
        while True:
            found = self._json("GET", path, f"{kind}s of {where}", query=query, headers=_PACKED)
            yield found.get("items") or []
            following = (found.get("metadata") or {}).get("continue")
            if not following:
                return
            query["continue"] = following

    def read(self, path: str) -> Json | None:
        """Return what the API server has at this path, such as `/version`, or None if there is nothing."""
        try:
            return self._json("GET", path, path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def events(self, uid: str) -> builtins.list[Json]:
        """Return the events about the object with this uid."""
        query = {"fieldSelector": f"involvedObject.uid={uid}"}
        return self._json("GET", self._path("Event"), f"events of {uid}", query=query).get("items") or []

    def create(self, made: Json, *, dry_run: bool = False) -> Json:
        """Create an object, and return it as the API server stores it. Raises Refused (409) if the name is taken.

        dry_run: only let the API server check the object
        """
        kind, query = made["kind"], {"dryRun": "All"} if dry_run else {}
        return self._json("POST", self._path(kind), f"{kind} {made['metadata']['name']}", body=made, query=query)

    def patch(self, kind: str, name: str, change: Json) -> None:
        """Set those fields of an object that `change` contains."""
        self._json("PATCH", self._path(kind, name), f"{kind} {name}", body=change, headers=_PATCH)

    def delete(self, kind: str, name: str, uid: str | None = None) -> None:
        """Delete an object and all objects that it owns. Do nothing if no object has this name and uid."""
        only = {"preconditions": {"uid": uid}} if uid else {}
        try:
            body = {"propagationPolicy": "Background"} | only
            self._json("DELETE", self._path(kind, name), f"{kind} {name}", body=body)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def watch(self, kind: str, selector: str, version: str) -> Iterator[Json]:
        """Return an iterator over the events after this version. The iterator ends when the server ends the watch.

        Raises Expired if the version is too old.
        """
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH),
        }
        lines = self._lines(self._path(kind), f"the watch of {kind}s", query, (_CONNECT, _WATCH_SILENCE))
        return (self._checked(event) for event in _events(lines))

    def log(
        self,
        pod: str,
        container: str,
        query: Mapping[str, str],
        *,
        follow: bool = False,
        within: float = _READ,
        namespace: str | None = None,
    ) -> Iterator[bytes]:
        """Return the lines of a container's log.

        namespace: of the pod, if it is not that of this client
        within: if `follow` is false, the longest wait for more data, in seconds
        """
        wanted = {"container": container, **query} | ({"follow": "true"} if follow else {})
        timeout = (min(_CONNECT, within), _LOG_SILENCE if follow else within)
        return self._lines(
            f"{self._path('Pod', pod, namespace=namespace)}/log", f"the log of pod {pod}", wanted, timeout
        )

    def _json(self, verb: str, path: str, what: str, **more: Any) -> Json:
        # The library's model classes are not used: it takes seconds to make the models of thousands of pods.
        found: Json = self._send(verb, path, what, lambda response: json.loads(response.data), **more)
        return found

    def _lines(self, path: str, what: str, query: Mapping[str, str], timeout: _Timeout) -> Iterator[bytes]:
        return _split(self._send("GET", path, what, lambda response: response, query=query, timeout=timeout), what)

    def _send(
        self,
        verb: str,
        path: str,
        what: str,
        read: Callable[[Any], Any],
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: _Timeout = (_CONNECT, _READ),
    ) -> Any:
        try:
            answer = read(
                self._api.call_api(
                    path,
                    verb,
                    query_params=[*(query or {}).items()],
                    header_params={"Accept": "application/json", **(headers or {})},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=timeout,
                )
            )
        except ApiException as error:
            raise self._sorted(error, verb, what) from None
        except (HTTPError, HTTPException, OSError, ValueError, ConfigException) as error:
            raise self._unanswered(error) from None
        self.on_answer()
        return answer

    def _path(self, kind: str, name: str = "", *, namespace: str | None = None, everywhere: bool = False) -> str:
        known = KINDS[kind]
        root = "/api" if "/" not in known.api else "/apis"
        scoped = known.namespaced and not everywhere
        within = f"/namespaces/{quote(namespace or self.namespace, safe='')}" if scoped else ""
        return f"{root}/{known.api}{within}/{known.plural}" + (f"/{quote(name, safe='')}" if name else "")

    def _checked(self, event: Json) -> Json:
        if event["type"] != "ERROR":
            return event
        status = event["object"]
        code, fact = status.get("code"), f"the API server {self._host}: {status.get('code')}: {status.get('message')}"
        raise Expired(code, fact) if code == 410 else Transient(fact)

    def _sorted(self, error: ApiException, verb: str, what: str) -> ApiError:
        said = server_message(error)
        fact = f"the API server {self._host}: HTTP {error.status}: {said}"
        if error.status == 401:
            refusal = f"does not accept the credentials in {self._credentials.token} (HTTP 401: {said})"
            advice = self._credentials.if_rejected
            return BadCredentials(Exit.DENIED, fact, f"the API server {self._host} {refusal}. {advice}")
        if error.status == 403 and (
            verb == "GET" or "cannot" in said
        ):  # any other 403 comes from an admission controller
            return Denied(Exit.DENIED, fact, self._denied(said, self.namespace))
        if is_transient(error.status):
            after = (error.headers or {}).get("Retry-After") or ""
            return Transient(fact, retry_after=float(after) if after.isdigit() else 0)
        refused = Expired if error.status == 410 else Refused
        return refused(error.status, f"{what}: the API server refuses this request (HTTP {error.status}): {said}")

    def _unanswered(self, error: Exception) -> ApiError:
        reason, advice = one_line(error), self._credentials.if_unreachable
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            fact = f"the certificate of the API server {self._host} cannot be trusted"
            where = self._credentials.authority
            told = f"{fact} with the CA of {where}: {reason}. Provide the CA that signed this certificate"
            return BadCredentials(Exit.CONFIG, f"{fact}: {reason}", told)
        fact = f"the API server {self._host} cannot be reached: {reason}"
        return Transient(fact, f"{fact}: {advice}" if advice else fact)


def _split(response: Any, what: str) -> Iterator[bytes]:
    rest = b""
    try:
        for chunk in response.stream(amt=None, decode_content=False):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
    except (HTTPError, HTTPException, OSError) as error:
        raise Transient(f"{what} was interrupted: {one_line(error)}") from None
    finally:
        response.close()
    if rest:
        yield rest


def _events(lines: Iterator[bytes]) -> Iterator[Json]:
    for line in lines:
        if line:
            try:
                event: Json = json.loads(line)
            except ValueError as error:
                raise Transient(f"the watch was interrupted: {one_line(error)}") from None
            yield event
