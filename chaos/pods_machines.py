"""The machines of a cluster: power nodes off and on, and stop the API server.

CLUSTER is the command that powers nodes off and on, as for tests/e2e/test_machines.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter

import psutil

from tests.e2e.cluster import Json, kubectl

_API_SERVER = "kube-apiserver"
_WITHIN = 120  # seconds for the command


class Machines:
    """Power off nodes and stop the API server. If several faults do the same, it lasts until the last one is undone."""

    def __init__(self) -> None:
        self._command = os.environ["CLUSTER"]
        self.nodes = [node["metadata"]["name"].removeprefix("node") for node in _nodes()]
        self._off: Counter[str] = Counter()
        self._api_server = _api_server()
        self._api_down = 0

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def power_off(self, node: str) -> None:
        """Power a node off without a message: its network is cut before its processes end."""
        self._off[node] += 1
        if self._off[node] == 1:
            self.inside(node, "ip", "link", "set", "eth0", "down")
            self._run("node-off", node)

    def power_on(self, node: str) -> None:
        """Power a node on, and wait until it is Ready."""
        self._off[node] -= 1
        if self._off[node] == 0:
            self._run("node-on", node)

    def inside(self, node: str, *command: str) -> str:
        """Run a command on the node and return its output."""
        return self._run("inside", node, *command)

    # ---- the API server ------------------------------------------------------------------------------------------

    def api_down(self) -> None:
        """Stop the API server: connections succeed, but no request is answered."""
        self._api_down += 1
        self._api_server.suspend()

    def api_up(self) -> None:
        self._api_down -= 1
        if not self._api_down:
            self._api_server.resume()

    @property
    def answers(self) -> bool:
        """Whether the API server answers requests."""
        return not self._api_down

    # ---- the end -------------------------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Return what is still powered off or stopped."""
        stopped = [f"{_API_SERVER} is stopped"] if self._api_server.status() == psutil.STATUS_STOPPED else []
        return [*stopped, *(f"node{node} is off" for node in self.nodes if self._off[node])]

    def _run(self, *words: str) -> str:
        command = [self._command, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN, check=False)
        if done.returncode:
            raise RuntimeError(f"cluster {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


def not_ready() -> list[str]:
    """Return the nodes on which Kubernetes starts no pods."""
    return [node["metadata"]["name"] for node in _nodes() if node["spec"].get("taints") or not _is_ready(node)]


def _is_ready(node: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def _nodes() -> list[Json]:
    found: list[Json] = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    return found


def _api_server() -> psutil.Process:
    (server,) = (process for process in psutil.process_iter(["name"]) if process.info["name"] == _API_SERVER)
    return server
