"""A proxy on loopback that counts the requests to an API server, and the bytes of requests and answers."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_CHUNK = 65536


@dataclass
class Count:
    """The traffic of one client: the first lines of its requests, and bytes with all headers, without TLS."""

    requests: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    left: int = 0  # closed connections

    @property
    def bytes(self) -> int:
        return self.sent + self.received

    def is_waiting(self) -> bool:
        """Return whether the client watches, or has closed a connection after its answer."""
        return self.left > 0 or any("watch=true" in line.lower() for line in self.requests)


class Proxy:
    """A proxy between one client and the API server. It adds no headers, since the client sends its own token."""

    def __init__(self, host: str, authority: str) -> None:
        self.count = Count()
        self.url = ""
        self._server: asyncio.Server | None = None
        self._upstream = urlsplit(host)
        self._trust = ssl.create_default_context(cafile=authority)
        self._trust.set_alpn_protocols(["http/1.1"])
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Refuse new connections, and close all open connections."""
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._upstream.port or 443
        self._open.add(writer)
        there, up = await asyncio.open_connection(self._upstream.hostname, port, ssl=self._trust)
        ways = [asyncio.ensure_future(self._ask(reader, up)), asyncio.ensure_future(self._answer(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            up.close()
            self._open.discard(writer)
            self.count.left += 1

    async def _ask(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        """Forward requests. All requests are reads, so they have no body and end after their headers."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.count.requests.append(head.partition(b"\r\n")[0].decode())
            self.count.sent += len(head)
            up.write(head)
            await up.drain()

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await there.read(_CHUNK):
            self.count.received += len(chunk)
            writer.write(chunk)
            await writer.drain()
