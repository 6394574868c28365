"""A small HTTP server with the part of the Kubernetes API that `launcher.job` uses."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Json = dict[str, Any]

CUT = "CUT"  # a line of a log at which the connection is cut once


class FakeCluster:
    """A cluster with `objects` by plural and name. It writes a kubeconfig for itself.

    refused: the status and message with which requests fail, by verb and plural
    logs: the log lines of pods, by name
    after: called with verb and plural after each answer
    paths: what other paths than those of objects answer
    """

    def __init__(self, folder: Path, namespace: str = "ns") -> None:
        self.namespace = namespace
        self.objects: dict[tuple[str, str], Json] = {}
        self.created: list[tuple[str, str]] = []
        self.refused: dict[tuple[str, str], tuple[int, str]] = {}
        self.logs: dict[str, list[str]] = {}
        self.after: Callable[[str, str], None] = lambda verb, plural: None
        self.paths: dict[str, Json] = {"/version": {"major": "1", "minor": "32"}, f"/api/v1/namespaces/{namespace}": {}}
        self.expired = 0  # how many of the next requests for a further page come too late
        self.asked: list[tuple[str, str]] = []  # verb and plural of each request
        self.lock = threading.Lock()
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

    def put(self, plural: str, added: Json) -> None:
        """Add an object that Kubernetes or a user makes."""
        added["metadata"].setdefault("uid", uuid.uuid4().hex)
        self.objects[plural, added["metadata"]["name"]] = added

    def end(self, job: str, condition: str, **more: str) -> None:
        """Set the condition of a Job to Complete or Failed."""
        conditions = [{"type": condition, "status": "True", **more}]
        self.objects["jobs", job]["status"] = {"conditions": conditions}

    def delete(self, plural: str, name: str) -> None:
        """Delete an object, if it still exists, and all objects that it owns."""
        deleted = self.objects.pop((plural, name), None)
        if deleted is None:
            return
        for (kind, owned), each in list(self.objects.items()):
            owners = each["metadata"].get("ownerReferences") or []
            if deleted["metadata"]["uid"] in [owner["uid"] for owner in owners]:
                self.delete(kind, owned)

    def answer(self, verb: str, plural: str, name: str, query: dict[str, str], body: Json | None) -> tuple[int, Any]:
        if (verb, plural) in self.refused:
            return self.refused[verb, plural][0], {"message": self.refused[verb, plural][1]}
        if verb == "POST":
            return self._create(plural, body or {}, stored="dryRun" not in query)
        if verb == "GET" and not name:
            wanted = [each.split("=", 1) for each in query.get("labelSelector", "").split(",") if each]
            listed = [each for (kind, _), each in list(self.objects.items()) if kind == plural]
            field, _, value = query.get("fieldSelector", "").partition("=")
            if field == "involvedObject.uid":
                listed = [each for each in listed if each["involvedObject"]["uid"] == value]
            if namespace := query.get("namespace"):
                listed = [each for each in listed if each["metadata"].get("namespace", namespace) == namespace]
            return self._page([each for each in listed if _has_labels(each, wanted)], query)
        if (plural, name) not in self.objects:
            return 404, {"message": f"{plural} {name!r} not found"}
        if verb == "DELETE":
            uid = ((body or {}).get("preconditions") or {}).get("uid")
            if uid and uid != self.objects[plural, name]["metadata"]["uid"]:
                return 409, {"message": f"the UID in the precondition ({uid}) does not match the UID of the object"}
            self.delete(plural, name)
            return 200, {}
        if verb == "PATCH":
            _merge(self.objects[plural, name], body or {})
        return 200, self.objects[plural, name]

    def _page(self, found: list[Json], query: dict[str, str]) -> tuple[int, Any]:
        """Answer with at most `limit` objects, from the one that `continue` names."""
        first, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(found)
        if first and self.expired:
            self.expired -= 1
            return 410, {"message": "the provided continue parameter is too old"}
        following = first + limit
        metadata = {"continue": str(following)} if following < len(found) else {}
        return 200, {"items": found[first:following], "metadata": metadata}

    def _create(self, plural: str, wanted: Json, *, stored: bool) -> tuple[int, Any]:
        name = wanted["metadata"]["name"]
        if (plural, name) in self.objects:
            return 409, {"message": f'{plural} "{name}" already exists'}
        if not stored:
            return 201, wanted
        self.created.append((plural, name))
        self.put(plural, wanted)
        return 201, wanted


def _kubeconfig(host: str, namespace: str) -> Json:
    return {
        "clusters": [{"name": "fake", "cluster": {"server": host}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "fake", "user": "me", "namespace": namespace}}],
        "current-context": "it",
    }


def _has_labels(each: Json, wanted: list[list[str]]) -> bool:
    labels = each["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted)


def _merge(existing: Json, change: Json) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(existing.setdefault(key, {}), value)
        else:
            existing[key] = value


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
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        cluster = self.server.cluster
        if url.path in cluster.paths or not _is_of_objects(url.path):
            found = cluster.paths.get(url.path)
            self._send(
                404 if found is None else 200, found if found is not None else {"message": f"there is no {url.path}"}
            )
            return
        plural, name, below = _parts(url.path)
        if below == "log":
            self._send_log(cluster.logs.get(name, []), query)
            return
        if "/namespaces/" in url.path:
            query["namespace"] = url.path.split("/namespaces/")[1].split("/")[0]
        with cluster.lock:
            cluster.asked.append((verb, plural))
            status, answer = cluster.answer(verb, plural, name, query, body)
        self._send(status, answer)
        cluster.after(verb, plural)

    def _send(self, status: int, answer: Any) -> None:
        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _send_log(self, lines: list[str], query: dict[str, str]) -> None:
        """Send two lines per second of log time; `sinceTime` counts in whole seconds, as in the real API."""
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        since = query.get("sinceTime", "")[:19]
        times = [f"2026-11-18T10:00:{number // 2:02}.{number % 2}00000000Z" for number in range(len(lines))]
        sent = [(time, line) for time, line in zip(times, lines, strict=True) if time >= since]
        for time, line in sent[-int(query.get("tailLines", len(sent))) or len(sent) :]:
            if line == CUT:
                lines[lines.index(CUT)] = "after the cut"
                return
            self.wfile.write(f"{time} {line}\n".encode() if "timestamps" in query else f"{line}\n".encode())


def _is_of_objects(path: str) -> bool:
    """Return whether the path is of objects, not of a namespace, a group of the API, or the server."""
    if re.fullmatch("/api/v1/namespaces/[^/]+", path):
        return False
    known = {"v1", "batch/v1", "apps/v1", "scheduling.volcano.sh/v1beta1"}
    return any(path.startswith((f"/api/{each}/", f"/apis/{each}/")) for each in known)


def _parts(path: str) -> tuple[str, str, str]:
    """Return plural, name and subresource of a path with or without a namespace."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces":
        parts = parts[2:]
    plural, name, below = [*parts, "", ""][:3]
    return plural, name, below
