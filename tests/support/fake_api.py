"""A small HTTPS server with the part of the Kubernetes API for pods: get, list, watch, and errors that a test sets."""

from __future__ import annotations

import gzip
import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]

_PACK_FROM = 128 * 1024  # bytes, as in the real API server


class Authority:
    """A CA in a folder, and a certificate for 127.0.0.1 that is signed by this CA."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.ca, self.key, self.chain = folder / "ca.crt", folder / "server.key", folder / "server.crt"
        ca_key, signing = folder / "ca.key", folder / "server.csr"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]  # Python 3.13 and newer require this
        _openssl(
            "req", "-x509", *curve, *usage, "-days", "2", "-keyout", ca_key, "-out", self.ca, "-subj", f"/CN={name}"
        )
        _openssl("req", *curve, "-keyout", self.key, "-out", signing, "-subj", "/CN=api")
        (folder / "san").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        sign = ["x509", "-req", "-in", signing, "-CA", self.ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2"]
        _openssl(*sign, "-extfile", folder / "san", "-out", self.chain)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class FakeApi:
    """Change its pods by `put` and `delete`. Make it fail by `next_answers`, `forbidden`, `expire`, `cut`, `stop`."""

    def __init__(self, authority: Authority, namespace: str = "ns") -> None:
        self.namespace = namespace
        self.token = "first"
        self.asked: list[tuple[str, str, float]] = []  # verb, selector or name, time
        self.forbidden: set[str] = set()
        self.next_answers: list[tuple[int, dict[str, str]]] = []  # statuses for the next requests, with headers
        self.user = "system:serviceaccount:ns:default"
        self.news = threading.Condition()
        self.first_known = 0  # a watch from before this version is expired
        self.watching = 0
        self.packed = 0  # answers that were compressed
        self._authority = authority
        self._version = 100
        self._pods: dict[str, Json] = {}
        self._events: list[tuple[int, str, Json]] = []
        self._epoch = 0  # a watch of an earlier epoch ends: with an error event if `_expired` has its epoch
        self._expired: set[int] = set()
        self.port = 0
        self.serve()

    def serve(self) -> None:
        """Listen, on the same port as before."""
        server = _Server(("127.0.0.1", self.port), self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._authority.chain, self._authority.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections and close all open connections."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def trust(self, authority: Authority) -> None:
        """Restart the server with a certificate of this authority."""
        self.stop()
        self._authority = authority
        self.serve()

    def put(self, *pods: Json) -> None:
        """Create or change pods."""
        with self.news:
            for pod in pods:
                kind = "MODIFIED" if pod["metadata"]["name"] in self._pods else "ADDED"
                self._happen(kind, pod)
                self._pods[pod["metadata"]["name"]] = self._events[-1][2]

    def delete(self, name: str) -> None:
        """Delete a pod."""
        with self.news:
            self._happen("DELETED", self._pods.pop(name))

    def cut(self) -> None:
        """Close the connections of all watches."""
        with self.news:
            self._epoch += 1
            self.news.notify_all()

    def expire(self) -> None:
        """End all watches with 410, and refuse new watches from older versions."""
        with self.news:
            self._expired.add(self._epoch)
            self._version += 1
            self.first_known = self._version
            self._epoch += 1
            self.news.notify_all()

    def count(self, verb: str) -> int:
        """Return how many requests with this verb have come."""
        return sum(asked[0] == verb for asked in self.asked)

    def _happen(self, kind: str, pod: Json) -> None:
        self._version += 1
        pod = json.loads(json.dumps(pod))
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, pod))
        self.news.notify_all()

    def snapshot(self, selector: str) -> tuple[list[Json], str]:
        """Return the pods that match, and the version."""
        with self.news:
            return [pod for pod in self._pods.values() if matches(selector, pod)], str(self._version)

    def pod(self, name: str) -> Json | None:
        return self._pods.get(name)

    def stream(self, selector: str, version: int, seconds: float, send: Callable[[Json], None]) -> bool:
        """Send events. Return True if the time is over, False if the watch was cut."""
        until = time.monotonic() + seconds
        with self.news:
            epoch = self._epoch
            self.watching += 1
        try:
            while True:
                with self.news:
                    fresh = [event for event in self._events if event[0] > version]
                    if not fresh and epoch == self._epoch and not self.news.wait(max(0, until - time.monotonic())):
                        return True
                    cut, expired = epoch != self._epoch, epoch in self._expired
                if expired:
                    send({"type": "ERROR", "object": status(410, "too old resource version", "Expired")})
                if cut:
                    return False
                for number, kind, pod in fresh:
                    version = number
                    if matches(selector, pod):
                        send({"type": kind, "object": pod})
        finally:
            with self.news:
                self.watching -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], api: FakeApi) -> None:
        self.api = api
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: clients that disconnect or do not trust the certificate are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        api, url = self.server.api, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        name = unquote(url.path).partition(f"/api/v1/namespaces/{api.namespace}/pods")[2].lstrip("/")
        watches = query.get("watch") in ("1", "true", "True")
        verb = "get" if name else "watch" if watches else "list"
        api.asked.append((verb, name or query.get("labelSelector", ""), time.monotonic()))
        if self._fails(verb):
            return
        if name:
            pod = api.pod(name)
            self._say(200, pod) if pod else self._say(404, status(404, f'pods "{name}" not found', "NotFound"))
        elif watches:
            self._watch(query)
        else:
            items, version = api.snapshot(query.get("labelSelector", ""))
            self._say(200, {"kind": "PodList", "metadata": {"resourceVersion": version}, "items": items})

    def _fails(self, verb: str) -> bool:
        api = self.server.api
        if api.next_answers:
            code, headers = api.next_answers.pop(0)
            self._say(code, status(code, f"told to answer {code}", ""), headers)
        elif self.headers.get("Authorization", "").partition(" ")[2] != api.token:
            self._say(401, status(401, "Unauthorized", "Unauthorized"))
        elif verb in api.forbidden:
            said = (
                f'pods is forbidden: User "{api.user}" cannot {verb} resource "pods" in API group "" '
                f'in the namespace "{api.namespace}"'
            )
            self._say(403, status(403, said, "Forbidden"))
        else:
            return False
        return True

    def _watch(self, query: dict[str, str]) -> None:
        api, version = self.server.api, int(query["resourceVersion"])
        if version < api.first_known:
            self._say(410, status(410, "too old resource version", "Expired"))
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            if api.stream(query.get("labelSelector", ""), version, float(query["timeoutSeconds"]), self._chunk):
                self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: Json) -> None:
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.flush()

    def _say(self, code: int, body: Json, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        if len(text) > _PACK_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            text = gzip.compress(text)
            self.server.api.packed += 1
            self.send_header("Content-Encoding", "gzip")
        always = {"Content-Type": "application/json", "Content-Length": str(len(text)), "Connection": "close"}
        for key, value in {**always, **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not print requests."""


def status(code: int, message: str, reason: str) -> Json:
    """Return an error as the API server sends it."""
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason}


def matches(selector: str, pod: Json) -> bool:
    """Return whether the selector, equality-based or set-based, selects the pod."""
    has = pod["metadata"].get("labels") or {}
    for part in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        key, within, values = part.strip(",").partition(" in ")
        if within:
            if has.get(key) not in values.strip("() ").replace(" ", "").split(","):
                return False
        else:
            key, _, value = part.partition("=")
            if has.get(key) != value:
                return False
    return True
