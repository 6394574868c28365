"""Read credentials for the API server, from a kubeconfig or from the service account of this pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kubernetes import client, config
from kubernetes.config.incluster_config import InClusterConfigLoader
from yaml import YAMLError

from launcher.base.host import SERVICE_ACCOUNT
from launcher.base.kube_errors import one_line
from launcher.errors import Exit, Failure


class Credentials(Protocol):
    """Where credentials come from, and what the user can do if the API server does not accept them."""

    @property
    def token(self) -> str:
        """The place of the token, for messages."""

    @property
    def authority(self) -> str:
        """The place of the CA certificate for the API server, for messages."""

    @property
    def if_rejected(self) -> str:
        """What the user can do if the API server does not accept the credentials."""

    @property
    def if_unreachable(self) -> str:
        """What the user can do if the API server cannot be reached."""

    def read(self) -> client.Configuration:
        """Read the current credentials. Raises Failure."""

    def namespace(self) -> str | None:
        """Return the namespace that the credentials name, or None. Raises Failure."""


@dataclass(frozen=True)
class Kubeconfig:
    """The current context of kubeconfig files. `path` names one or several files, as KUBECONFIG does."""

    path: str
    if_rejected = "Does `kubectl get pods` work?"
    if_unreachable = "is the cluster running, and is it the right cluster (`kubectl config current-context`)?"

    @property
    def token(self) -> str:
        return self.path

    @property
    def authority(self) -> str:
        return f"{self.path} (certificate-authority)"

    def read(self) -> client.Configuration:
        settings = client.Configuration()
        try:
            config.load_kube_config(self.path, client_configuration=settings, persist_config=False)
            self._context()
        except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise Failure(
                Exit.CONFIG,
                f"KUBECONFIG: {self.path!r}: no cluster found in this configuration: {one_line(error)}: expected "
                "kubeconfig files, as for kubectl",
            ) from None
        return settings

    def namespace(self) -> str | None:
        return self._context().get("namespace")

    def _context(self) -> dict[str, str]:
        context: dict[str, str] = config.list_kube_config_contexts(self.path)[1].get("context", {})
        return context


@dataclass(frozen=True)
class ServiceAccount:
    """The files of the service account that Kubernetes mounts into a pod.

    if_missing: what the user can do if there are no such files
    """

    if_missing: str
    folder: str = SERVICE_ACCOUNT
    if_rejected = "Check whether the service account still exists, and whether the token has expired"
    if_unreachable = ""

    @property
    def token(self) -> str:
        return f"{self.folder}/token"

    @property
    def authority(self) -> str:
        return f"{self.folder}/ca.crt"

    def read(self) -> client.Configuration:
        settings = client.Configuration()
        try:
            InClusterConfigLoader(self.token, self.authority).load_and_set(settings)
        except (config.ConfigException, OSError) as error:
            raise self._missing(error) from None
        settings.proxy = None  # the API server of the pod's own cluster is never behind a proxy
        return settings

    def namespace(self) -> str | None:
        try:
            with open(f"{self.folder}/namespace", encoding="utf-8") as mounted:
                return mounted.read().strip()
        except OSError as error:
            raise self._missing(error) from None

    def _missing(self, error: Exception) -> Failure:
        return Failure(
            Exit.CONFIG,
            f"no cluster is configured: {one_line(error)} (service account in {self.folder}, KUBECONFIG unset): "
            f"{self.if_missing}",
        )
