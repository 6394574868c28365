"""Nodes with one network namespace each. Their network can be divided into two, and single directions can be cut."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.jobs import until
from tests.support.nodes import Nodes


class TwoSwitches(Nodes):
    """Nodes with one network namespace each. All are connected to one switch, until `cut` moves some to the other."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.devices = ["nic"] * count
        self.addresses = [f"10.77.0.{number}" for number in range(1, count + 1)]
        self._ports = [f"port-{number}" for number in range(count)]
        self._lost: list[tuple[int, int]] = []
        self._replaced: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> TwoSwitches:
        self._holders = [_holder() for _ in range(len(self.addresses) + 1)]
        self._switches = self._holders.pop()
        self._networks = [os.readlink(f"/proc/{holder.pid}/ns/net") for holder in self._holders]
        for name in ("together", "apart"):
            self._plug("add", name, "type", "bridge")
            self._plug("set", name, "up")
        for number in range(len(self._holders)):
            self._connect(number)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for holder in (*self._holders, *self._replaced, self._switches):
            holder.communicate()

    def _connect(self, node: int) -> None:
        holder, port = self._holders[node], self._ports[node]
        self._plug("add", port, "type", "veth", "peer", "name", "nic", "netns", str(holder.pid))
        self._plug("set", port, "master", "together", "up")
        _inside(holder, "ip", "link", "set", "nic", "address", f"02:00:0a:4d:00:{node + 1:02x}")
        _inside(holder, "ip", "address", "add", f"{self.addresses[node]}/24", "dev", "nic")
        for device in ("lo", "nic"):
            _inside(holder, "ip", "link", "set", device, "up")

    def replace(self, node: int) -> None:
        """Give the node's address to a new machine. The processes on the old machine lose their network."""
        self.cut(node)
        self._replaced.append(self._holders[node])
        self._holders[node] = _holder()
        self._networks.append(self._networks[node])
        self._networks[node] = os.readlink(f"/proc/{self._holders[node].pid}/ns/net")
        self._ports[node] = f"port-{node}-{len(self._replaced)}"
        self._connect(node)
        self._filter("-A", [way for way in self._lost if way[1] == node])

    def cut(self, *nodes: int) -> None:
        """Move these nodes to the other switch: they reach each other, but no other node."""
        for node in nodes:
            self._plug("set", self._ports[node], "master", "apart")

    def heal(self, *nodes: int) -> None:
        for node in nodes:
            self._plug("set", self._ports[node], "master", "together")

    def lose(self, *ways: tuple[int, int]) -> None:
        """Drop all packets from the first node of each way to the second. The other direction is not affected."""
        self._filter("-A", ways)
        self._lost += ways

    def deliver(self, *ways: tuple[int, int]) -> None:
        """Undo one `lose` for each of these ways."""
        self._filter("-D", ways)
        for way in ways:
            self._lost.remove(way)

    def holder_of(self, env: Mapping[str, str]) -> int:
        """Return the process that holds the node whose address is POD_IP."""
        return self._holders[self.addresses.index(env["POD_IP"])].pid

    def inside(self, *nodes: int) -> list[int]:
        """Return the live processes on these nodes, or on all nodes if none is named."""
        networks = {self._networks[node] for node in nodes or range(len(self._networks))}
        pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        holders = {holder.pid for holder in (*self._holders, *self._replaced)}
        return [pid for pid in pids - holders if _network(pid) in networks]

    def _filter(self, change: str, ways: Sequence[tuple[int, int]]) -> None:
        """Change a rule on the receiving node: on the sending node, the sender would get an error."""
        for receiver in sorted({receiver for _, receiver in ways}):
            rules = [f"{change} INPUT -s {self.addresses[sender]} -j DROP" for sender, to in ways if to == receiver]
            text = "\n".join(["*filter", *rules, "COMMIT", ""])
            _inside(self._holders[receiver], "iptables-restore", "--noflush", "--wait", input=text.encode())

    def _plug(self, *words: str) -> None:
        _inside(self._switches, "ip", "link", *words)


def _holder() -> subprocess.Popen[bytes]:
    """Start a process that keeps a new network namespace alive until this process ends.

    The process is in a new session, so that signals to the test's process group do not end it.
    """
    holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, start_new_session=True)
    until(lambda: holder.poll() is not None or _network(holder.pid) not in (None, _network(os.getpid())))
    return holder


def _network(pid: int) -> str | None:
    """Return the network namespace of a process, or None if the process does not exist."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _entering(holder: subprocess.Popen[bytes]) -> list[str]:
    return ["nsenter", f"--target={holder.pid}", "--net", "--"]


def _inside(holder: subprocess.Popen[bytes], *argv: str, input: bytes | None = None) -> None:
    subprocess.run([*_entering(holder), *argv], check=True, capture_output=True, input=input)
