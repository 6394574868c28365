"""Run a finder with a fake name server. Start this in a new mount and network namespace, as test_dns.py does."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from launcher.discovery.finder import make_finder
from launcher.errors import Failure

_A = 1


class NameServer:
    """A name server that answers each look-up with the next step of the script. The last step is repeated."""

    def __init__(self, script: list[list[str] | None]) -> None:
        self.names: list[str] = []
        self._script = script
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(512)
            name, end = _name(question)
            addresses: list[str] | None = []
            if int.from_bytes(question[end : end + 2], "big") == _A:
                self.names.append(name)
                addresses = self._script.pop(0) if len(self._script) > 1 else self._script[0]
            self._socket.sendto(_answer(question, end + 4, addresses), asker)


def _name(question: bytes) -> tuple[str, int]:
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at + 1


def _answer(question: bytes, end: int, addresses: list[str] | None) -> bytes:
    code = b"\x81\x83" if addresses is None else b"\x81\x80"
    records = [b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04" + socket.inet_aton(a) for a in addresses or []]
    counts = b"\x00\x01" + len(records).to_bytes(2, "big") + bytes(4)
    return question[:2] + code + counts + question[12:end] + b"".join(records)


def main() -> None:
    """Set up the namespaces, find peers, and print the result as JSON."""
    from tests.support.finders import dns_settings
    from tests.support.logs import logged

    asked: dict[str, Any] = json.loads(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.NamedTemporaryFile("w") as resolver:
        resolver.write(f"nameserver 127.0.0.1\nsearch {asked['search']}\noptions ndots:5\n")
        resolver.flush()
        subprocess.run(["mount", "--bind", resolver.name, "/etc/resolv.conf"], check=True)
    server = NameServer(asked["script"])
    finds = asked["settings"].pop("finds", 1)
    found: dict[str, Any] = {"names": server.names}

    async def search() -> None:
        finder = make_finder(dns_settings(**asked["settings"]))
        hubs = []
        for _ in range(finds):
            peers = await finder.find()
            hubs.append(peers.hub)
        found.update(hub=peers.hub, rank=peers.rank, hubs=hubs, lower=list(peers.lower))

    try:
        with logged() as found["said"]:
            asyncio.run(search())
    except Failure as failure:
        found.update(code=int(failure.code), message=failure.message)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
