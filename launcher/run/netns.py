"""Create a network namespace for several nodes on one machine.

Paddle v0 finds its address by the name of a device. So each node gets an alias of the loopback device (`lo:1`) with its
own address. Without root, a user namespace is necessary, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import os
import socket
import struct

from launcher.errors import Exit, Failure

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_IFF_UP = 1
_FIRST_ADDRESS = ipaddress.IPv4Address("127.0.1.1")


def enter(nodes: int) -> list[tuple[str, str]]:
    """Move this process into a new network namespace. Return the device and the address of each node.

    The process must have only one thread.
    """
    try:
        if os.geteuid() != 0 or not _unshare(_CLONE_NEWNET):
            _enter_with_user_namespace()
        _set_up("lo")
        return [_alias(f"lo:{node + 1}", str(_FIRST_ADDRESS + node)) for node in range(nodes)]
    except OSError as error:  # on some systems, a new user namespace has no capabilities
        raise Failure(
            Exit.CONFIG,
            f"cannot create a network for the nodes: {error.strerror}: Paddle v0 needs an address and a device per "
            "node, and so a network namespace: run this as root with CAP_SYS_ADMIN, or allow user namespaces "
            "(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, "
            "user.max_user_namespaces)",
        ) from None


def _enter_with_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if not _unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(content)


def _unshare(flags: int) -> bool:
    return bool(ctypes.CDLL(None, use_errno=True).unshare(flags) == 0)


def _set_up(device: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sH14x", device.encode(), 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(handle, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", device.encode(), flags | _IFF_UP))


def _alias(device: str, address: str) -> tuple[str, str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        packed = struct.pack("16sHH4s8x", device.encode(), socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(handle, _SIOCSIFADDR, packed)
    return device, address
