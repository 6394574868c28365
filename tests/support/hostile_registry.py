"""An HTTP server on this machine that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]


class HostileRegistry:
    """`answer` writes the whole response to a request."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.asked: list[Asked] = []
        self._server = _Server(("127.0.0.1", 0), self, answer)
        self.port = self._server.server_address[1]
        self.host = f"localhost:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Write a response. Underscores in the names of headers become hyphens."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], owner: HostileRegistry, answer: Callable[[BaseHTTPRequestHandler], None]
    ) -> None:
        super().__init__(address, _Handler)
        self.owner = owner
        self.answer = answer

    def handle_error(self, *_: object) -> None:
        pass  # the client has closed the connection


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.owner.asked.append(Asked(self.command, self.path, dict(self.headers.items())))
        self.server.answer(self)

    do_POST = do_GET
