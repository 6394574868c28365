"""The name of an image: registry, repository, and tag or digest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from launcher.registry.errors import Unreadable

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255  # characters of a repository
_LONGEST_HOST = 253 + len(":65535")
_OFFICIAL = "library"  # the folder of repositories whose name has neither a registry nor a folder


@dataclass(frozen=True)
class Reference:
    """An image in a registry. `host` has the port, if there is one. `version` is a tag or a digest."""

    host: str
    repository: str
    version: str

    def __str__(self) -> str:
        separator = "@" if is_digest(self.version) else ":"
        return f"{self.host}/{self.repository}{separator}{self.version}"


def parse(image: str, default_host: str | None = None) -> Reference:
    """Return the image that a pod's `image` field names. Raises Unreadable.

    default_host: the registry of images whose name has no registry
    """
    name, at, digest = image.partition("@")
    host, path = _split_host(name)
    path, colon, tag = path.partition(":")
    if at and not is_digest(digest):
        raise Unreadable(f"{image!r:.300}: expected a digest after @: sha256: and 64 digits")
    if len(path) > _LONGEST or not _REPOSITORY.fullmatch(path) or (colon and not _TAG.fullmatch(tag)):
        raise Unreadable(f"{image!r:.300}: expected an image such as registry:5000/team/paddle:1.0")
    if host is None:
        if default_host is None:
            raise Unreadable(
                f"{image}: its name has no registry: name the registry that your nodes use for such images with "
                "--registry"
            )
        host, path = default_host, path if "/" in path else f"{_OFFICIAL}/{path}"
    return Reference(checked_host(host), path, digest or tag or "latest")


def checked_host(host: str) -> str:
    """Return a registry's host and port in lower case. Raises Unreadable if it is neither a name nor an address."""
    if len(host) > _LONGEST_HOST or not _HOST.fullmatch(host):
        raise Unreadable(f"{host!r:.300}: expected the host of a registry, and perhaps a port: registry:5000")
    return host.lower()


def is_digest(version: str) -> bool:
    return _DIGEST.fullmatch(version) is not None


def _split_host(name: str) -> tuple[str | None, str]:
    """Split as container runtimes do: the first part is a host if it has a dot or a port, or is localhost."""
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or re.search(r"[.:A-Z]", first)):
        return first, rest
    return None, name
