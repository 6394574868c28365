"""A small real HTTP server with the part of the Kubernetes API that jobs are submitted by, and looked after."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Json = dict[str, Any]


class FakeCluster:
    """`objects` by plural and name; `refused` says which verb of which plural fails, and how; `logs` are of pods."""

    def __init__(self, folder: Path, namespace: str = "ns") -> None:
        self.namespace = namespace
        self.objects: dict[tuple[str, str], Json] = {}
        self.created: list[tuple[str, str]] = []
        self.refused: dict[tuple[str, str], tuple[int, str]] = {}
        self.logs: dict[str, list[str]] = {}  # a line of None cuts the connection
        self.after: Callable[[str, str], None] = lambda verb, plural: None  # what else happens once it is answered
        self.changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), self)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        host = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(host, namespace)))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def names(self, plural: str) -> list[str]:
        return [name for kind, name in self.objects if kind == plural]

    def put(self, plural: str, made: Json) -> None:
        """What Kubernetes makes by itself, as pods."""
        made["metadata"].setdefault("uid", uuid.uuid4().hex)
        self.objects[plural, made["metadata"]["name"]] = made

    def end(self, job: str, condition: str, **more: str) -> None:
        """Kubernetes' word that a Job is over."""
        conditions = [{"type": condition, "status": "True", **more}]
        self.objects["jobs", job]["status"] = {"conditions": conditions}

    def answer(self, verb: str, plural: str, name: str, query: dict[str, str], body: Json | None) -> tuple[int, Any]:
        if (verb, plural) in self.refused:
            return self.refused[verb, plural][0], {"message": self.refused[verb, plural][1]}
        if verb == "POST":
            return self._create(plural, body or {})
        if verb == "GET" and not name:
            wanted = [each.split("=", 1) for each in query.get("labelSelector", "").split(",") if each]
            return 200, {"items": [each for kind, each in self._of(plural) if _has(each, wanted)]}
        if (plural, name) not in self.objects:
            return 404, {"message": f"{plural} {name!r} not found"}
        if verb == "DELETE":
            self._delete(plural, name)
            return 200, {}
        if verb == "PATCH":
            _merge(self.objects[plural, name], body or {})
        return 200, self.objects[plural, name]

    def _of(self, plural: str) -> list[tuple[str, Json]]:
        return [(kind, each) for (kind, _), each in list(self.objects.items()) if kind == plural]

    def _create(self, plural: str, made: Json) -> tuple[int, Any]:
        name = made["metadata"]["name"]
        if (plural, name) in self.objects:
            return 409, {"message": f'{plural} "{name}" already exists'}
        self.created.append((plural, name))
        self.put(plural, made)
        return 201, made

    def _delete(self, plural: str, name: str) -> None:
        """With all that it owns, as the garbage collector does a little later."""
        uid = self.objects.pop((plural, name))["metadata"]["uid"]
        for kind, each in list(self.objects):
            owners = self.objects[kind, each]["metadata"].get("ownerReferences") or []
            if uid in [owner["uid"] for owner in owners]:
                self._delete(kind, each)


def _kubeconfig(host: str, namespace: str) -> Json:
    return {
        "clusters": [{"name": "fake", "cluster": {"server": host}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "fake", "user": "me", "namespace": namespace}}],
        "current-context": "it",
    }


def _has(each: Json, wanted: list[list[str]]) -> bool:
    labels = each["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted)


def _merge(there: Json, change: Json) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(there.setdefault(key, {}), value)
        else:
            there[key] = value


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], cluster: FakeCluster) -> None:
        super().__init__(address, _Handler)
        self.cluster = cluster


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, verb: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        plural, name, rest = _taken_apart(split.path)
        cluster = self.server.cluster
        if rest == "log":
            self._log(cluster.logs.get(name, []), query)
            return
        with cluster.changed:
            status, answer = cluster.answer(verb, plural, name, query, body)
        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
        cluster.after(verb, plural)

    def _log(self, lines: list[str], query: dict[str, str]) -> None:
        """Each line with the time that it was written at; from `sinceTime` on, which counts in whole seconds."""
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        stamped = [f"2026-11-18T10:00:{number // 2:02}.{number % 2}00000000Z" for number in range(len(lines))]
        given = [
            (stamp, line)
            for stamp, line in zip(stamped, lines, strict=True)
            if stamp >= query.get("sinceTime", "")[:19]
        ]
        for stamp, line in given[-int(query.get("tailLines", len(given))) or len(given) :]:
            if line == "CUT":
                lines[lines.index("CUT")] = "after the cut"
                return
            self.wfile.write(f"{stamp} {line}\n".encode() if "timestamps" in query else f"{line}\n".encode())


def _taken_apart(path: str) -> tuple[str, str, str]:
    """Plural, name and what is below it, of a path with or without a namespace."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[0] == "namespaces":
        words = words[2:]
    plural, name, rest = [*words, "", ""][:3]
    return plural, name, rest
