"""Which addresses a registry may name."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from launcher.registry import addresses
from launcher.registry.addresses import LOOPBACK, PRIVATE, PUBLIC
from launcher.registry.errors import Unreadable


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("9.9.9.9", PUBLIC),
        ("2606:4700::1111", PUBLIC),
        ("10.1.2.3", PRIVATE),
        ("192.168.0.1", PRIVATE),
        ("100.64.0.1", PRIVATE),
        ("fd00::1", PRIVATE),
        ("127.0.0.53", LOOPBACK),
        ("::1", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("::ffff:10.0.0.1", PRIVATE),
        ("64:ff9b::a9fe:a9fe", None),
        ("64:ff9b::7f00:1", LOOPBACK),
        ("64:ff9b::909:909", PUBLIC),
        ("2002:a00:1::", PRIVATE),
        ("169.254.169.254", None),
        ("fe80::1%eth0", None),
        ("0.0.0.0", None),
        ("::", None),
        ("224.0.0.1", None),
        ("255.255.255.255", None),
    ],
)
def test_how_far_an_address_reaches(address: str, reach: str | None) -> None:
    assert addresses.reach(address) == reach


def test_a_public_registry_may_name_public_servers_only() -> None:
    named = ["9.9.9.9", "10.0.0.1", "127.0.0.1", "169.254.169.254"]
    assert addresses.allowed(named, frozenset({PUBLIC})) == ["9.9.9.9"]
    assert addresses.allowed(named, frozenset({PRIVATE})) == ["9.9.9.9", "10.0.0.1"]
    assert addresses.allowed(named, frozenset({LOOPBACK})) == ["9.9.9.9", "127.0.0.1"]


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.1.2.3", "::1"])
def test_this_machine_is_known_without_a_name_server(host: str) -> None:
    assert addresses.is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.test", "10.0.0.1", "127.0.0.1.test", ""])
def test_other_hosts_are_not_this_machine(host: str) -> None:
    assert not addresses.is_loopback(host)


@pytest.mark.parametrize("url", ["https://", "https://host:99999/", "https://host:x/", "https:///path"])
def test_a_url_without_a_usable_host_is_refused(url: str) -> None:
    with pytest.raises(Unreadable, match="expected a host"):
        addresses.host_and_port(urlsplit(url))


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(Unreadable, match=r"^registry\.invalid: no such host here: "):
        addresses.resolve("registry.invalid", 443)
