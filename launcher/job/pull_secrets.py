"""The credentials with which nodes pull the images of a pod: its imagePullSecrets."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.errors import Failure

if TYPE_CHECKING:
    from launcher.base.kube import KubeClient
    from launcher.job.spec import Json
    from launcher.registry.keyring import Credentials
    from launcher.registry.reference import Reference

_KEYS = (".dockerconfigjson", ".dockercfg")  # one for each type of such a Secret
_DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True)
class PullSource:
    """What a pod template says about the credentials for its images.

    account: the service account, whose imagePullSecrets count if the template has none; "" means `default`
    """

    secrets: tuple[str, ...] = ()
    account: str = ""


@dataclass
class PullSecrets:
    """Reads the imagePullSecrets of one pod template, when they are needed.

    connect: returns a client, or raises Failure. None: this command reads nothing from a cluster
    notes: why no credentials of these Secrets were used
    """

    source: PullSource
    connect: Callable[[], KubeClient] | None
    notes: list[str] = field(default_factory=list, init=False)

    def credentials(self, image: Reference) -> Iterator[Credentials]:
        """Yield the credentials for an image, Secret by Secret."""
        if self.connect is None:
            if self.source.secrets:
                self.notes.append(f"`render` does not read imagePullSecrets ({', '.join(self.source.secrets)})")
            return
        try:
            client = self.connect()
            names = self.source.secrets or _of_account(client, self.source.account or _DEFAULT_ACCOUNT)
        except Failure as failure:
            self.notes.append(f"imagePullSecrets cannot be read: {failure}")
            return
        for name in names:
            yield from self._in_secret(client, name, image)

    def _in_secret(self, client: KubeClient, name: str, image: Reference) -> Iterator[Credentials]:
        from launcher.registry.errors import Unreadable
        from launcher.registry.keyring import credentials_for

        where = f"imagePullSecret {name}"
        try:
            secret = client.get("Secret", name)
            if secret is None:
                self.notes.append(f"{where}: namespace {client.namespace} has no such Secret")
                return
            found = credentials_for(image, _entries(secret), where)
        except (Failure, Unreadable) as problem:
            self.notes.append(str(problem) if isinstance(problem, Unreadable) else f"{where}: {problem}")
            return
        except _Unsuitable:
            self.notes.append(f"{where}: expected a Secret of `kubectl create secret docker-registry`")
            return
        if not found:
            self.notes.append(f"{where}: has no credentials for {image.host}")
        for credentials in found:
            yield credentials
            self.notes.append(f"{where}: the registry does not accept its credentials")


class _Unsuitable(Exception):
    """A Secret does not have the data of a Docker configuration."""


def _of_account(client: KubeClient, name: str) -> tuple[str, ...]:
    """Return the imagePullSecrets of a service account, which Kubernetes adds to its pods."""
    account = client.get("ServiceAccount", name) or {}
    entries = account.get("imagePullSecrets") or []
    return tuple(str(entry["name"]) for entry in entries if entry.get("name"))


def _entries(secret: Json) -> object:
    """Return the credentials in a Secret by registry. Raises _Unsuitable."""
    data = secret.get("data") or {}
    key = next((key for key in _KEYS if key in data), None)
    try:
        config = json.loads(base64.b64decode(data[key])) if key else None
    except (binascii.Error, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise _Unsuitable
    return config.get("auths") if key == _KEYS[0] else config
