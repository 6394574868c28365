"""Which addresses a registry may send this machine to.

A registry answers with addresses: a redirect, or the server that makes tokens. A registry that is not trusted could
name a service which only this machine can reach. So it may name public hosts, and hosts as near as its own.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import SplitResult

from launcher.registry.errors import Unreadable

PUBLIC, PRIVATE, LOOPBACK = "public", "private", "loopback"
_MOST = 4  # addresses of a host that are tried
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the order in which to try them. Raises Unreadable."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreadable(f"{host}: no such host here: {getattr(error, 'strerror', None) or error}") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))[:_MOST]


def reach(address: str) -> str | None:
    """Return PUBLIC, PRIVATE or LOOPBACK, or None for an address at which no registry can be."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = _embedded(parsed) or parsed
    if parsed.is_loopback:
        return LOOPBACK
    if parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified or parsed.is_reserved:
        return None  # 169.254.169.254 is the metadata service of a cloud
    return PUBLIC if parsed.is_global else PRIVATE


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which a gateway (NAT64, 6to4) or this machine itself translates an IPv6 address."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def allowed(addresses: list[str], registry: frozenset[str]) -> list[str]:
    """Return those addresses at which a server may be asked. `registry`: how far the registry's own addresses reach."""
    return [address for address in addresses if reach(address) in {PUBLIC, *registry}]


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own, without asking a name server."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return reach(host) == LOOPBACK
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Return whether a host is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def host_and_port(url: SplitResult) -> tuple[str, int]:
    """Return the host and port of a URL. Raises Unreadable."""
    try:
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host:
        raise Unreadable(f"{url.netloc!r:.300}: expected a host, and perhaps a port")
    return host, port or (80 if url.scheme == "http" else 443)
