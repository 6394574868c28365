"""Addresses are written, ordered and found on devices, IPv4 and IPv6 alike."""

from __future__ import annotations

import subprocess
import sys

import pytest

from launcher.base import host
from tests.support.paths import REPOSITORY


def test_a_port_after_an_ipv6_address_stays_recognizable() -> None:
    assert host.host_port("10.0.0.9", 7164) == "10.0.0.9:7164"
    assert host.host_port("x-0.svc", 7164) == "x-0.svc:7164"
    assert host.host_port("fd00::9", 7164) == "[fd00::9]:7164"


def test_addresses_are_sorted_as_numbers_with_ipv4_first() -> None:
    unsorted = ["fd00::10", "10.0.0.10", "fd00::9", "10.0.0.9", "::ffff:10.0.0.8"]
    in_order = ["::ffff:10.0.0.8", "10.0.0.9", "10.0.0.10", "fd00::9", "fd00::10"]
    assert sorted(unsorted, key=host.address_order) == in_order
    with pytest.raises(ValueError, match="not an IP address"):
        host.address_order("x-0.svc")


def test_loopback_is_a_local_address_but_not_all_of_its_network() -> None:
    held = host.local_addresses()
    assert host.is_among("127.0.0.1", held)
    assert host.is_among("::ffff:127.0.0.1", held)
    assert not host.is_among("127.77.77.77", held)
    assert not host.is_among("x-0.svc", held)


def test_devices_have_addresses_by_name_and_by_alias() -> None:
    code = """
import subprocess
for command in ("link set lo up", "addr add 10.1.2.3/32 dev lo label lo:2", "link add nic0 type bridge",
                "link set nic0 up", "addr add fd00::9/64 dev nic0 nodad",
                "link add nic1 type bridge", "link set nic1 up", "addr add 10.9.9.9/32 dev nic1"):
    subprocess.run(["ip", *command.split()], check=True)
from launcher.base import host
print(host.device_address("lo"), host.device_address("lo:2"), host.device_address("nic0"), host.device_address("none"))
held = host.local_addresses()
print(host.device_names(), host.own_address(), all(host.is_among(x, held) for x in ("10.1.2.3", "fd00::9", "::1")))
"""
    root = str(REPOSITORY)
    inside = ["unshare", "--map-root-user", "--net", sys.executable, "-c", code]
    done = subprocess.run(inside, capture_output=True, text=True, cwd=root)
    assert done.stdout.splitlines() == [
        "127.0.0.1 10.1.2.3 fd00::9 None",
        "['lo', 'lo:2', 'nic0', 'nic1'] 10.1.2.3 True",
    ], done.stderr
