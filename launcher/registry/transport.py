"""One HTTP request to a registry, within limits of time, size and reach."""

from __future__ import annotations

import glob
import os
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from launcher import __version__
from launcher.registry import addresses
from launcher.registry.errors import NoTls, Unreadable

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 20.0
_CHUNK = 65536
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_CERTIFICATES = "/etc/docker/certs.d"  # of container engines: a folder per registry


@dataclass(frozen=True)
class Answer:
    """A response. `headers` has lower-case names; equal names are joined by commas."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Transport:
    """Requests to one registry, and to the servers that it names. All of them together end at the deadline.

    host: the registry's host, perhaps with a port
    plain_http: hosts with which HTTP without TLS may be spoken, besides this machine's own
    deadline: by time.monotonic()
    """

    host: str
    plain_http: frozenset[str]
    deadline: float
    _reach: frozenset[str] = field(default=frozenset(), init=False)  # of the address at which the registry answered
    _contexts: dict[str, ssl.SSLContext] = field(default_factory=dict, init=False)

    def get(self, url: str, headers: Mapping[str, str], limit: int) -> Answer:
        """Return the answer to a GET, of at most `limit` bytes. Follow redirects; they get no credentials elsewhere.

        Raises Unreadable.
        """
        sent = dict(headers)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self.request("GET", url, sent, limit)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            try:
                before, url = url, urljoin(url, location)
            except ValueError as error:
                raise Unreadable(f"{self.host}: a redirect to {location!r:.300}: {error}") from None
            if _origin(url) != _origin(before):
                sent.pop("Authorization", None)
        raise Unreadable(f"{self.host}: more than {_MOST_REDIRECTS} redirects")

    def request(
        self, method: str, url: str, headers: Mapping[str, str], limit: int, body: bytes | None = None
    ) -> Answer:
        """Return the answer to one request. Raises Unreadable."""
        parts = _split(url)
        host, port = addresses.host_and_port(parts)
        self._check_scheme(parts, host)
        own = {"User-Agent": f"paddle-launcher/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
        sent = {**own, **headers, "Host": parts.netloc.rpartition("@")[2]}
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        failure = Unreadable(f"{host}: no address can be reached")
        for pool, target, reach in self._pools(parts, host, port, path):
            try:
                with pool:
                    answer = self._answer(pool, method, target, sent, limit, body, host)
                if reach and self._is_registry(host):
                    self._reach = frozenset({reach})  # only now: its name may also lead to nearer addresses
                return answer
            except SSLError as error:
                raise _tls_failure(host, error) from error
            except (HTTPError, HTTPException, OSError, ValueError) as error:
                failure = Unreadable(f"{host}:{port}: {_problem(error)}")
        raise failure

    def _answer(
        self,
        pool: urllib3.HTTPConnectionPool | urllib3.ProxyManager,
        method: str,
        target: str,
        headers: Mapping[str, str],
        limit: int,
        body: bytes | None,
        host: str,
    ) -> Answer:
        timeout = urllib3.Timeout(connect=self._left(_CONNECT_SECONDS), read=self._left(_READ_SECONDS))
        response = pool.urlopen(
            method,
            target,
            body=body,
            headers=dict(headers),
            redirect=False,
            retries=False,
            timeout=timeout,
            preload_content=False,
            decode_content=False,
        )
        data = bytearray()
        while chunk := response.read1(_CHUNK, decode_content=False):
            data += chunk
            if len(data) > limit:
                raise Unreadable(f"{host}: the answer has more than {limit} bytes")
            self._left(_READ_SECONDS)
        received = {name.lower(): value for name, value in response.headers.itermerged()}
        return Answer(response.status, received, bytes(data))

    def _pools(
        self, parts: SplitResult, host: str, port: int, path: str
    ) -> list[tuple[urllib3.HTTPConnectionPool | urllib3.ProxyManager, str, str | None]]:
        """Return a pool for each address of a host, or for its proxy; each with what to ask it for, and its reach.

        A pool connects to an address that was checked: a second look-up could answer with another address.
        """
        if proxy := _proxy(parts, host):
            if addresses.is_address(host):  # names are looked up by the proxy
                self._check([host], host)
            return [(proxy, parts._replace(fragment="").geturl(), None)]
        pools: list[tuple[urllib3.HTTPConnectionPool | urllib3.ProxyManager, str, str | None]] = []
        for address in self._check(addresses.resolve(host, port), host):
            pool: urllib3.HTTPConnectionPool
            if parts.scheme == "http":
                pool = urllib3.HTTPConnectionPool(address, port)
            else:
                context = self._context(parts.netloc.rpartition("@")[2])
                pool = urllib3.HTTPSConnectionPool(address, port, ssl_context=context, server_hostname=host)
            pools.append((pool, path, addresses.reach(address)))
        return pools

    def _context(self, netloc: str) -> ssl.SSLContext:
        if netloc not in self._contexts:
            self._contexts[netloc] = _tls_context(netloc)
        return self._contexts[netloc]

    def _is_registry(self, host: str) -> bool:
        return host == (urlsplit(f"//{self.host}").hostname or "")

    def _check(self, found: list[str], host: str) -> list[str]:
        """Return the addresses of a host that may be asked. Those of other hosts must not be nearer than the registry.

        Raises Unreadable if there are none.
        """
        if self._is_registry(host):
            near = [address for address in found if addresses.reach(address)]
        else:
            near = addresses.allowed(found, self._reach)
        if not near:
            raise Unreadable(
                f"{self.host}: names the server {host} at {', '.join(found)}: expected a public address, or one as "
                "near as the registry's own"
            )
        return near

    def _check_scheme(self, parts: SplitResult, host: str) -> None:
        if parts.scheme == "https":
            return
        is_plain = host in self.plain_http or parts.netloc.lower() in self.plain_http
        if parts.scheme == "http" and (is_plain or addresses.is_loopback(host)):
            return
        raise Unreadable(f"{self.host}: names {parts.scheme[:20] or 'no scheme'}://{host}: expected https")

    def _left(self, most: float) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Unreadable(f"{self.host}: does not answer in time")
        return min(most, left)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise Unreadable(f"{url!r:.300}: {error}") from None


def _origin(url: str) -> tuple[str, tuple[str, int]]:
    parts = _split(url)
    return parts.scheme, addresses.host_and_port(parts)


def _proxy(parts: SplitResult, host: str) -> urllib3.ProxyManager | None:
    """Return the proxy of HTTPS_PROXY or HTTP_PROXY for a host, unless NO_PROXY has the host. None: there is none."""
    url = urllib.request.getproxies().get(parts.scheme)
    if not url or addresses.is_loopback(host) or urllib.request.proxy_bypass(parts.netloc):
        return None
    if "://" not in url:
        url = f"http://{url}"
    proxy = urlsplit(url)
    headers = {}
    if proxy.username is not None:
        user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=user)
    return urllib3.ProxyManager(url, proxy_headers=headers, ssl_context=_tls_context(parts.netloc.rpartition("@")[2]))


def _tls_context(netloc: str) -> ssl.SSLContext:
    """Return a context that verifies certificates: by the system's authorities, and by those of container engines.

    SSL_CERT_FILE and SSL_CERT_DIR replace the system's authorities.
    """
    context = ssl.create_default_context()
    for certificate in sorted(glob.glob(os.path.join(glob.escape(f"{_CERTIFICATES}/{netloc.lower()}"), "*.crt"))):
        try:
            context.load_verify_locations(certificate)
        except (OSError, ssl.SSLError) as error:
            raise Unreadable(f"{certificate}: cannot be read as certificates: {error}") from None
    return context


def _tls_failure(host: str, error: SSLError) -> Unreadable:
    text = str(error)
    if "verify failed" in text or "doesn't match" in text:
        reason = text.partition("CERTIFICATE_VERIFY_FAILED] ")[2].partition(" (_ssl")[0] or f"{text:.200}"
        return Unreadable(
            f"{host}: {reason}: put its authority into {_CERTIFICATES}/{host}/ca.crt, or set SSL_CERT_FILE"
        )
    return NoTls(f"{host}: does not speak TLS: {text:.200}")


def _problem(error: Exception) -> str:
    reason = getattr(error, "original_error", None) or error.__cause__ or error
    text = getattr(reason, "strerror", None) or str(reason)
    return f"cannot be read: {text:.200}"
