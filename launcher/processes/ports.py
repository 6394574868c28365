"""Find out whether a child listens on its ports. The launcher never connects: a probe can crash a pserver."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from launcher.base import shortage
from launcher.processes.listening import listening_sockets
from launcher.processes.proc import process_tree

_PAUSES = (
    (1.0, 0.02),
    (10.0, 0.05),
    (float("inf"), 0.2),
)  # seconds of waiting, and the pause between checks until then
_BLIND = 5.0  # seconds


def wait_until_listening(pid: int, ports: Iterable[int], stop: threading.Event) -> bool:
    """Wait until the process tree of `pid` listens on all ports. Blocks. Return False once `stop` is set.

    Raises OSError if this process has no file descriptor for a look for 5 s.
    """
    wanted = tuple(ports)
    waited = looked_at = 0.0
    while True:
        try:
            if is_listening(pid, wanted):
                return True
            looked_at = waited
        except OSError:
            if waited - looked_at > _BLIND:
                raise
        pause = next(pause for until, pause in _PAUSES if waited < until)
        if stop.wait(pause):
            return False
        waited += pause


def is_listening(pid: int, ports: tuple[int, ...]) -> bool:
    """Return whether the process tree of `pid` listens on all ports.

    If this user may not see the open files of the tree, listening sockets of other processes count, too. Raises OSError
    if this process has no file descriptor left.
    """
    sockets = listening_sockets()
    if any(port not in sockets for port in ports):
        return False
    of_tree, all_seen = _sockets_of_tree(pid)
    return all(sockets[port] & of_tree for port in ports) or not all_seen


def _sockets_of_tree(pid: int) -> tuple[set[bytes], bool]:
    """Return the inodes of all sockets of the process tree, and whether this user may see all of them."""
    inodes: set[bytes] = set()
    all_seen = True
    for process in process_tree(pid):
        try:
            inodes |= _sockets_of(process)
        except PermissionError:
            all_seen = False
        except OSError as error:
            if shortage.is_of_descriptors(error):
                raise
            continue  # the process has ended
    return inodes, all_seen


def _sockets_of(pid: int) -> set[bytes]:
    folder = f"/proc/{pid}/fd"
    inodes = set()
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue  # the file was closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1].encode())
    return inodes
