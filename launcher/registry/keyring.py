"""The credentials in a Docker configuration: which of them are for an image."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from launcher.registry.errors import Unreadable
from launcher.registry.reference import Reference

_API_VERSIONS = ("v1", "v2")  # a key may be the URL of a registry's API


@dataclass(frozen=True, repr=False)
class Credentials:
    """A user and password, or an identity token."""

    user: str
    password: str
    identity_token: str = ""

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


def credentials_for(image: Reference, entries: object, where: str) -> list[Credentials]:
    """Return the credentials for an image, those for the longest part of its name first, as nodes try them.

    entries: by registry, as in `auths` of a Docker configuration
    where: what a problem names. Raises Unreadable.
    """
    matching = [key for key in entries if _matches(key, image)] if isinstance(entries, Mapping) else []
    found = []
    for key in sorted(matching, key=len, reverse=True):
        entry = entries[key] if isinstance(entries, Mapping) else None
        if isinstance(entry, Mapping) and (credentials := _read(entry, f"{where}: {key}")):
            found.append(credentials)
    return found


def _matches(key: str, image: Reference) -> bool:
    """Return whether a key is for an image. A key is a host or a URL, perhaps with a path. Its host may have `*`."""
    host, _, path = key.rpartition("://")[2].partition("/")
    first, _, rest = path.partition("/")
    path = rest if first in _API_VERSIONS else path
    host = host.lower()
    return (host == image.host or _has_form(host, image.host)) and image.repository.startswith(path.rstrip("/"))


def _has_form(pattern: str, host: str) -> bool:
    patterns, parts = pattern.split("."), host.split(".")
    return "*" in pattern and len(patterns) == len(parts) and all(map(fnmatchcase, parts, patterns))


def _read(entry: Mapping[str, Any], where: str) -> Credentials | None:
    texts = {name: str(entry.get(name) or "") for name in ("auth", "username", "password", "identitytoken")}
    user, password = texts["username"], texts["password"]
    if texts["auth"]:
        try:
            user, colon, password = base64.b64decode(texts["auth"], validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            colon = ""
        if not colon:
            raise Unreadable(f"{where}: auth: expected user:password in base64")
    if texts["identitytoken"]:
        return Credentials(user, "", texts["identitytoken"])
    return Credentials(user, password.rstrip("\0")) if user else None
