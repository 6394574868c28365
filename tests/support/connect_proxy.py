"""A proxy for HTTPS that leads every host to one port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Proxy:
    """asked: the host and the Proxy-Authorization of each connection"""

    def __init__(self, target: int) -> None:
        self.asked: list[tuple[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), self, target)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], owner: Proxy, target: int) -> None:
        super().__init__(address, _Handler)
        self.owner = owner
        self.target = target


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.server.owner.asked.append((self.path, self.headers.get("Proxy-Authorization") or ""))
        with socket.create_connection(("127.0.0.1", self.server.target), 20) as target:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_copy, args=(target, self.connection), daemon=True)
            back.start()
            _copy(self.connection, target)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
