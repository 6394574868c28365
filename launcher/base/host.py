"""The network addresses (IPv4 and IPv6) and the GPUs of this host."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # where Kubernetes mounts the service account


def host_port(host: str, port: int) -> str:
    """Return `10.0.0.9:7164`, `name:7164` or `[fd00::9]:7164`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(text: str) -> bool:
    """Return whether the text is an IP address, not a name."""
    return parse_address(text) is not None


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address in this text, or None for a name. An IPv4-mapped IPv6 address is returned as IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def address_order(address: str) -> tuple[int, int]:
    """Return a key for numeric order: 10.0.0.9 before 10.0.0.10, IPv4 before IPv6. Raises ValueError for a name."""
    number = parse_address(address)
    if number is None:
        raise ValueError(f"{address!r} is not an IP address")
    return number.version, int(number)


def device_names() -> list[str]:
    """Return the sorted names of all network devices and aliases (`lo:2`)."""
    return sorted(_devices())


def device_address(device: str) -> str | None:
    """Return the address of a network device or alias, preferably IPv4, or None. Link-local addresses do not count."""
    found = _of_device(device)
    return next((address for address in found if ":" not in address), found[0] if found else None)


def own_address() -> str | None:
    """Return the first address that is not a loopback address, preferably IPv4, or None if there is none."""
    found = [a for name in device_names() for a in _of_device(name) if not ip_address(a).is_loopback]
    return min(found, key=lambda address: ":" in address, default=None)


def local_addresses() -> frozenset[IPv4Address | IPv6Address]:
    """Return all addresses of this host, for `is_among`."""
    found = (parse_address(address) for name in _devices() for address in _of_device(name))
    return frozenset(address for address in found if address is not None)


def is_among(address: str, addresses: Collection[IPv4Address | IPv6Address]) -> bool:
    """Return whether the address is one of `addresses`.

    Every host answers to 127.0.0.2, too. This address counts only if it is in `addresses`.
    """
    return parse_address(address) in addresses


def _devices() -> Mapping[str, Sequence[Any]]:
    """Return the addresses of each network device."""
    import psutil  # here, since training programs that import launcher.job must not load it

    return psutil.net_if_addrs()


def _of_device(device: str) -> list[str]:
    found = _devices().get(device, ())
    usable = [entry.address for entry in found if entry.family in (socket.AF_INET, socket.AF_INET6)]
    return [address for address in usable if "%" not in address and not ip_address(address).is_link_local]


def visible_gpus(environment: Mapping[str, str], devices: str = "/dev") -> int:
    """Return how many GPUs CUDA_VISIBLE_DEVICES lists.

    If this variable is unset, return the number of device files (nvidia0, nvidia1, ...) in `devices`.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return len([name for name in listed.split(",") if name.strip() not in ("", "-1", "NoDevFiles")])
    try:
        names = os.listdir(devices)
    except OSError:
        return 0
    return sum(bool(re.fullmatch(r"nvidia[0-9]+", name)) for name in names)
