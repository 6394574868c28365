"""Whether a child listens on its ports, by looking and never by connecting: a probe can crash a pserver."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from launcher.processes.proc import tree

_LISTEN = b"0A"
_PACE = ((1.0, 0.02), (10.0, 0.05), (float("inf"), 0.2))  # until so many seconds have passed, look this often


def wait_until_listening(pid: int, ports: Iterable[int], stop: threading.Event) -> bool:
    """Look until the process tree of `pid` listens on all ports. Blocks; False once `stop` is set."""
    wanted = tuple(ports)
    waited = 0.0
    while not listens(pid, wanted):
        pause = next(pause for until, pause in _PACE if waited < until)
        if stop.wait(pause):
            return False
        waited += pause
    return True


def listens(pid: int, ports: tuple[int, ...]) -> bool:
    """Whether sockets of the process tree of `pid` listen on all ports; a stranger's socket does not count.

    Where the tree's open files may not be seen, the ports alone must do.
    """
    sockets = _listening_sockets()
    if any(port not in sockets for port in ports):
        return False
    ours, all_seen = _sockets_of_tree(pid)
    return all(sockets[port] & ours for port in ports) or not all_seen


def _listening_sockets() -> dict[int, set[bytes]]:
    """The inodes of the listening TCP sockets by port, for IPv4 and IPv6."""
    found: dict[int, set[bytes]] = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, "rb") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue  # no IPv6 here
        for fields in map(bytes.split, lines):
            if fields[3] == _LISTEN:
                found.setdefault(int(fields[1].rpartition(b":")[2], 16), set()).add(fields[9])
    return found


def _sockets_of_tree(pid: int) -> tuple[set[bytes], bool]:
    """The inodes of all sockets of the session and the descendants of `pid`, and whether all could be seen."""
    inodes: set[bytes] = set()
    all_seen = True
    for member in tree(pid):
        try:
            inodes |= _sockets_of(member)
        except PermissionError:
            all_seen = False
        except OSError:
            continue  # it has ended
    return inodes, all_seen


def _sockets_of(pid: int) -> set[bytes]:
    folder = f"/proc/{pid}/fd"
    inodes = set()
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1].encode())
    return inodes
