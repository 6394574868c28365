"""The pods of one namespace, from the API server: every call bounded, every error sorted into final or passing.

What passes (429, 5xx, a cut connection, a server that restarts) is tried again with growing, random pauses for as
long as the launcher lets this process live. 401 and an untrusted certificate get a few tries with the files read
anew, and so does the 403 of a server that has just come back.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException, NotFoundException
from kubernetes.config.incluster_config import InClusterConfigLoader
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential_jitter
from urllib3.exceptions import HTTPError

from launcher.base.kube import CONNECT, READ, message, short, tried_once
from launcher.base.kube_rights import denied
from launcher.errors import Exit, Failure

T = TypeVar("T")
Json = dict[str, Any]

_WATCH = 300  # seconds that the server keeps a watch
_SILENCE = 90.0  # seconds without a bookmark, which come every minute: the connection is dead
_CREDENTIALS = 4  # tries with credentials or certificates that are refused
_BOUNDED: dict[str, Any] = {"_preload_content": False, "_request_timeout": (CONNECT, READ)}
_backoff = wait_exponential_jitter(initial=0.25, max=15, jitter=0.5)


class TransientError(Exception):
    """An error that time heals; `after` is how long the server asks to wait."""

    def __init__(self, text: str, after: float = 0) -> None:
        super().__init__(text)
        self.after = after


class Expired(Exception):
    """The watch's version is too old: list again."""


class PodsApi:
    """Pods of a namespace. `trouble` is told what the last error was, and an empty text when it is over."""

    def __init__(self, namespace: str, kubeconfig: str, service_account: str, trouble: Callable[[str], None]) -> None:
        self.namespace = namespace
        self._kubeconfig = kubeconfig
        self._service_account = service_account
        self._trouble = trouble
        self._troubled = False
        self._watched = False
        self._refused = 0
        self._connect()

    def patiently(self, step: Callable[[], T]) -> T:
        """Run the step again until it raises nothing that passes."""
        trying = Retrying(
            retry=retry_if_exception_type(TransientError), wait=_pause, before_sleep=self._say_trouble, reraise=True
        )
        return trying(step)

    def get(self, name: str) -> Json | None:
        """One pod, or None where it is not."""
        try:
            return self._read(lambda: self._core.read_namespaced_pod(name, self.namespace, **_BOUNDED))
        except NotFoundException:
            return None

    def list(self, selector: str) -> tuple[list[Json], str]:
        """All pods that match, and the version to watch from."""
        packed = {"Accept-Encoding": "gzip"}  # a list of hundreds of pods gets 20 times smaller
        found = self._read(
            lambda: self._core.list_namespaced_pod(self.namespace, label_selector=selector, _headers=packed, **_BOUNDED)
        )
        return found.get("items") or [], found["metadata"]["resourceVersion"]

    def watch(self, selector: str, version: str) -> Iterator[Json]:
        """Changes from this version on, until the server or the network ends it."""
        response = self._call(
            lambda: self._core.list_namespaced_pod(
                self.namespace,
                label_selector=selector,
                resource_version=version,
                watch=True,
                allow_watch_bookmarks=True,
                timeout_seconds=_WATCH,
                _preload_content=False,
                _request_timeout=(CONNECT, _SILENCE),
            )
        )
        self._watched = True
        rest = b""
        try:
            for chunk in response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (self._checked(json.loads(line)) for line in lines if line)
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            raise TransientError(f"the watch was cut: {short(error)}") from None
        finally:
            response.close()

    def _connect(self) -> None:
        settings = client.Configuration()
        try:
            if self._kubeconfig:
                config.load_kube_config(self._kubeconfig, client_configuration=settings, persist_config=False)
            else:
                folder = self._service_account
                InClusterConfigLoader(f"{folder}/token", f"{folder}/ca.crt").load_and_set(settings)
                settings.proxy = None  # the API server of one's own cluster is never behind a proxy
        except (config.ConfigException, OSError) as error:
            raise Failure(
                Exit.CONFIG,
                f"no way to the API server: {short(error)} (KUBECONFIG is "
                f"{self._kubeconfig or 'unset'}, the service account's files are in {self._service_account}). "
                "Let the pod have its service account's token (automountServiceAccountToken), or find peers without "
                "the API server: LAUNCHER_DISCOVERY=dns or static",
            ) from None
        self._host = settings.host
        self._core = client.CoreV1Api(client.ApiClient(tried_once(settings)))

    def _read(self, send: Callable[[], Any]) -> Json:
        # Objects as they come: to make models of thousands of pods takes the client seconds.
        read: Json = self._call(lambda: json.loads(send().data))
        return read

    def _call(self, send: Callable[[], T]) -> T:
        try:
            answer = send()
        except NotFoundException:
            raise
        except ApiException as error:
            raise self._sorted(error) from None
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self._untrusted(error) from None
            raise TransientError(f"{self._host}: {short(error)}") from None
        self._refused = 0
        if self._troubled:
            self._troubled = False
            self._trouble("")
        return answer

    def _sorted(self, error: ApiException) -> Exception:
        said = message(error)
        if error.status == 401:
            return self._unauthorized(said)
        if error.status == 403:
            # A server that has just started says this to everybody until it has read the roles.
            if (self._troubled or self._watched) and self._may_try_again():
                return TransientError(f"{self._host}: HTTP 403: {said}")
            return Failure(Exit.DENIED, denied(said, self.namespace))
        if error.status == 410:
            return Expired()
        if error.status in (400, 422):
            return Failure(Exit.CONFIG, f"the API server can't use this request (LAUNCHER_SELECTOR?): {said}")
        after = (error.headers or {}).get("Retry-After") or ""
        return TransientError(f"{self._host}: HTTP {error.status}: {said}", float(after) if after.isdigit() else 0)

    def _checked(self, event: Json) -> Json:
        if event["type"] != "ERROR":
            return event
        status = event["object"]
        if status.get("code") == 410:
            raise Expired
        raise TransientError(f"{self._host}: {status.get('code')}: {status.get('message')}")

    def _unauthorized(self, said: str) -> Exception:
        if self._may_try_again():
            return TransientError(f"{self._host}: HTTP 401: {said}; reading the token again")
        where = self._kubeconfig or f"{self._service_account}/token"
        return Failure(
            Exit.DENIED,
            f"the API server {self._host} does not accept the credentials in {where}, read anew {_CREDENTIALS} times "
            f"(HTTP 401: {said}). Look whether the service account still exists and whether the token has expired",
        )

    def _untrusted(self, error: Exception) -> Exception:
        if self._may_try_again():
            return TransientError(f"{self._host}: its certificate can't be trusted: {short(error)}")
        where = self._kubeconfig or f"{self._service_account}/ca.crt"
        return Failure(
            Exit.CONFIG,
            f"the certificate of the API server {self._host} can't be trusted with the CA of {where}: {short(error)}. "
            "Give the CA that signed it; it is never talked to unverified",
        )

    def _may_try_again(self) -> bool:
        self._refused += 1
        if self._refused >= _CREDENTIALS:
            return False
        self._connect()
        return True

    def _say_trouble(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        self._troubled = True
        self._trouble(f"API server: {state.outcome.exception()}")


def _pause(state: RetryCallState) -> float:
    """Growing and random, and never before the server wants to be asked again."""
    error = state.outcome.exception() if state.outcome else None
    after = error.after if isinstance(error, TransientError) else 0
    return after + random.uniform(0, 1) if after else _backoff(state)
