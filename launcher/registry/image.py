"""What an image runs: its ENTRYPOINT and CMD, from its registry (OCI distribution API, Docker's registry API v2)."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from launcher.registry.addresses import is_loopback
from launcher.registry.docker_config import read_credentials
from launcher.registry.errors import Denied, NoTls, Unreadable
from launcher.registry.keyring import Credentials
from launcher.registry.login import authorization
from launcher.registry.reference import Reference, is_digest
from launcher.registry.transport import Answer, Transport

T = TypeVar("T")

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_PLATFORM = ("linux", "amd64")
_LIMIT = 4 << 20  # bytes of a manifest or of a configuration: registries refuse larger manifests
_SECONDS = 60.0  # for one image
_DENIED = (401, 403, 404)  # some registries say only to those who may read an image that it exists


@dataclass(frozen=True)
class ImageConfig:
    """What a container of an image runs."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]


def read_image(
    reference: Reference,
    plain_http: frozenset[str],
    more: Callable[[Reference], Iterable[Credentials]] = lambda image: (),
    seconds: float = _SECONDS,
) -> ImageConfig:
    """Return what an image runs. Raises Unreadable, at the latest after this number of seconds.

    more: asked for further credentials if the registry does not accept the user's
    """

    def read() -> ImageConfig:
        return _Image(reference, Transport(reference.host, plain_http, time.monotonic() + seconds), more).config()

    return _within(seconds, read, f"{reference.host}: does not answer in time: tried for {seconds:.0f} s")


def _within(seconds: float, work: Callable[[], T], problem: str) -> T:
    """Return what `work` returns. Raises Unreadable if it has not ended in time; its thread ends with the process.

    Nothing else ends a look-up of a name, or headers that arrive one byte at a time.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds + 1.0)
    if failures:
        raise failures[0]
    if not results:
        raise Unreadable(problem)
    return results[0]


@dataclass
class _Image:
    """The requests for one image."""

    reference: Reference
    transport: Transport
    more: Callable[[Reference], Iterable[Credentials]]
    _authorization: str | None = field(default=None, init=False)
    _credentials: Credentials | None = field(default=None, init=False)

    def config(self) -> ImageConfig:
        base = f"{self._scheme()}://{self.reference.host}/v2/{self.reference.repository}"
        manifest = self._manifest(base, self.reference.version)
        if manifest.get("mediaType") in _INDEXES or "manifests" in manifest:
            manifest = self._manifest(base, self._of_platform(manifest))
        digest = _digest(manifest.get("config"))
        if digest is None:
            kind = manifest.get("mediaType") or f"schemaVersion {manifest.get('schemaVersion')}"
            raise Unreadable(f"{self.reference}: expected an image of OCI or of Docker's schema 2, found {kind!s:.100}")
        return self._parsed(self._get(f"{base}/blobs/{digest}", "configuration", digest))

    def _scheme(self) -> str:
        """Return https, or http for hosts that the user has allowed. On this machine, HTTP is tried if TLS fails."""
        host = self.reference.host
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if host in self.transport.plain_http or name in self.transport.plain_http:
            return "http"
        if is_loopback(name.strip("[]")):
            try:
                self.transport.request("GET", f"https://{host}/v2/", {}, _LIMIT)
            except NoTls:
                return "http"
        return "https"

    def _manifest(self, base: str, version: str) -> dict[str, Any]:
        digest = version if is_digest(version) else None
        return self._json(self._get(f"{base}/manifests/{version}", "manifest", digest), "manifest")

    def _of_platform(self, index: dict[str, Any]) -> str:
        """Return the digest of the image for linux/amd64 in an index."""
        entries = index.get("manifests")
        for entry in entries if isinstance(entries, list) else []:
            platform = entry.get("platform") if isinstance(entry, dict) else None
            if isinstance(platform, dict) and (platform.get("os"), platform.get("architecture")) == _PLATFORM:
                digest = _digest(entry)
                if digest and entry.get("mediaType") not in _INDEXES:
                    return digest
        raise Unreadable(f"{self.reference}: has no image for {'/'.join(_PLATFORM)}")

    def _get(self, url: str, what: str, digest: str | None) -> bytes:
        headers = {"Accept": ", ".join((*_MANIFESTS, *_INDEXES))} if what == "manifest" else {}
        answer = self._authorized(url, headers)
        if answer.status != 200:
            raise Unreadable(self._refusal(answer.status))
        if digest and digest != f"sha256:{hashlib.sha256(answer.body).hexdigest()}":
            raise Unreadable(f"{self.reference}: its {what} does not have the digest {digest}")
        return answer.body

    def _authorized(self, url: str, headers: dict[str, str]) -> Answer:
        """Return the answer to a GET. Log in if the registry asks for it. Raises Unreadable.

        If no credentials are accepted, the answer to the user's counts.
        """
        known = {"Authorization": self._authorization} if self._authorization else {}
        answer = self.transport.get(url, headers | known, _LIMIT)
        if answer.status != 401 or known:
            return answer
        challenge = answer.headers.get("www-authenticate", "")
        denied: Denied | None = None
        for number, credentials in enumerate(self._all_credentials()):
            try:
                header = authorization(self.transport, challenge, self.reference.repository, credentials)
            except Denied as error:
                denied = error if number == 0 else denied
                continue
            if header is None:
                continue
            tried = self.transport.get(url, headers | {"Authorization": header}, _LIMIT)
            if tried.status not in _DENIED:
                self._authorization = header
                return tried
            answer = tried if number == 0 else answer
        if denied:
            raise denied
        return answer

    def _all_credentials(self) -> Iterator[Credentials | None]:
        self._credentials = read_credentials(self.reference)
        yield self._credentials
        yield from self.more(self.reference)

    def _refusal(self, status: int) -> str:
        host = self.reference.host
        if status == 404:
            return f"{self.reference}: the registry has no such image"
        if status in (401, 403):
            given = "with your credentials" if self._credentials else "without credentials"
            return f"{host}: denies reading {self.reference.repository} {given}: `docker login {host}`"
        if status == 429:
            return f"{host}: allows no more requests now: `docker login {host}`, or try again later"
        return f"{host}: answers with HTTP {status} for {self.reference.repository}"

    def _json(self, data: bytes, what: str) -> dict[str, Any]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise Unreadable(f"{self.reference}: its {what} is no JSON object")
        return value

    def _parsed(self, data: bytes) -> ImageConfig:
        config = self._json(data, "configuration").get("config")
        fields = config if isinstance(config, dict) else {}
        return ImageConfig(self._words(fields, "Entrypoint"), self._words(fields, "Cmd"))

    def _words(self, fields: dict[str, Any], name: str) -> tuple[str, ...]:
        words = fields.get(name) or []
        if not isinstance(words, list) or not all(map(_is_word, words)):
            raise Unreadable(f"{self.reference}: its configuration: {name}: expected a list of texts")
        return tuple(words)


def _is_word(word: object) -> bool:
    """Return whether a process can get this argument: half of a character (a surrogate) cannot be written."""
    return isinstance(word, str) and "\0" not in word and word.encode(errors="ignore").decode() == word


def _digest(entry: object) -> str | None:
    digest = entry.get("digest") if isinstance(entry, dict) else None
    return digest if isinstance(digest, str) and is_digest(digest) else None
