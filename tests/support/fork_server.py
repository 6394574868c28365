"""A program that imports the launcher once, and forks a process for each request of `tests.support.forked`.

    python -m tests.support.fork_server LISTENER LIFE MODULE...

LISTENER is the descriptor of a listening socket, and LIFE that of a pipe: when its other end closes, the program ends.
Each connection is one request: the arguments, the environment and the directory of the new process, and as descriptors
its three standard streams and, if it needs one, its network namespace. The answer is its pid and, once it has ended,
its wait status.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from ctypes import CDLL
from typing import Any

_CLONE_NEWNET = 0x40000000
_MOST = 1 << 18  # bytes of a request


def main() -> None:
    listener, life, modules = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if os.fork():  # the tests end what their own process has left behind: the server must not be its child
        return
    if serve(listener, life, modules):
        runpy.run_module("launcher", run_name="__main__", alter_sys=True)


def serve(listener: int, life: int, modules: list[str]) -> bool:
    """Fork a process for each request. Return True in each new process, and False at the end of the server."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    clients: dict[int, int] = {}  # by the pid of the process that they have requested
    while True:
        ready, _, _ = select.select([listener, woken, life], [], [])
        if life in ready:
            return False
        if woken in ready:
            os.read(woken, 1024)
            reap(clients)
        if listener in ready:
            load(modules)
            with socket.socket(fileno=os.dup(listener)) as accepting:
                client = accepting.accept()[0].detach()
            if fork(client, clients):
                return True


def load(modules: list[str]) -> None:
    while modules:
        importlib.import_module(modules.pop())
    gc.freeze()  # so that forked processes copy fewer pages


def fork(client: int, clients: dict[int, int]) -> bool:
    """Do what a client requests. Return True in the new process."""
    with socket.socket(fileno=os.dup(client)) as connection:
        message, given, _, _ = socket.recv_fds(connection, _MOST, 4)
    pid = os.fork()
    if pid == 0:
        become(json.loads(message), given)
        return True
    clients[pid] = client
    tell(client, pid)
    for descriptor in given:
        os.close(descriptor)
    return False


def reap(clients: dict[int, int]) -> None:
    """Tell the clients which of their processes have ended."""
    while clients:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        client = clients.pop(pid)
        tell(client, status)
        os.close(client)


def tell(client: int, number: int) -> None:
    try:
        os.write(client, str(number).encode())
    except OSError:
        pass  # the test has ended


def become(request: dict[str, Any], given: list[int]) -> None:
    """Change this process to the one that was requested."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdin, stdout, stderr, *namespace = given
    if namespace and CDLL(None, use_errno=True).setns(namespace[0], _CLONE_NEWNET) != 0:
        raise RuntimeError("the network namespace cannot be entered")
    os.setsid()
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", buffering=1, closefd=False)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["directory"]
    sys.argv = ["launcher", *request["arguments"]]


if __name__ == "__main__":
    main()
