"""A program that imports the launcher once, and forks a process for each request of `tests.support.forked`.

    python -m tests.support.fork_server SOCKET MODULE...

SOCKET is the descriptor of a socket to the tests. A request has the arguments, the environment and the directory of the
new process, and as descriptors its report, its three standard streams and, if it needs one, its network namespace. The
report gets the pid and later the exit status, a line each. Without more requests the program ends.
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
    requests = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that forked processes copy fewer pages
    if serve(requests):
        runpy.run_module("launcher", run_name="__main__", alter_sys=True)


def serve(requests: socket.socket) -> bool:
    """Fork a process for each request. Return True in each new process, and False once no request can come."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reports: dict[int, int] = {}
    sources: list[Any] = [requests, woken]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if woken in ready:
            os.read(woken, 1024)
            reap(reports)
        if requests in ready:
            message, given, _, _ = socket.recv_fds(requests, _MOST, 5)
            if not message:
                return False
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                requests.detach()
                become(json.loads(message), given)
                return True
            reports[pid], *others = given
            for descriptor in others:
                os.close(descriptor)
            os.write(reports[pid], f"{pid}\n".encode())


def reap(reports: dict[int, int]) -> None:
    """Report each process that has ended."""
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        report = reports.pop(pid)
        os.write(report, f"{status}\n".encode())
        os.close(report)


def become(request: dict[str, Any], given: list[int]) -> None:
    """Change this process to the one that was requested."""
    _, stdin, stdout, stderr, *namespace = given
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
