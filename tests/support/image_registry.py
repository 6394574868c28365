"""A registry of images on this machine: Debian's docker-registry, and a server that makes tokens for it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.support.jobs import until

Json = dict[str, Any]

USER, PASSWORD = "alice", "s3cret"
OCI = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json")
DOCKER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
)
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"


class ImageRegistry:
    """A docker-registry. `auth`: its section of the same name in the configuration. `tls`: certificate and key."""

    def __init__(self, folder: Path, auth: Json | None = None, tls: tuple[Path, Path] | None = None) -> None:
        if shutil.which("docker-registry") is None:
            pytest.skip("docker-registry is not installed: .ci/run tools installs it")
        folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.host = f"localhost:{self.port}"
        self._authority = tls[0] if tls else None
        served: Json = {"addr": f"127.0.0.1:{self.port}"}
        if tls:
            served["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
        config: Json = {"version": 0.1, "log": {"level": "error"}, "http": served}
        config["storage"] = {"filesystem": {"rootdirectory": str(folder / "images")}}
        if auth:
            config["auth"] = auth
        (folder / "config.yml").write_text(yaml.safe_dump(config))
        self._log = (folder / "log").open("wb")
        command = ["docker-registry", "serve", str(folder / "config.yml")]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        until(self._listens)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def push(
        self,
        repository: str,
        version: str = "1",
        *,
        entrypoint: Sequence[str] | None = None,
        command: Sequence[str] | None = None,
        kinds: tuple[str, str] = OCI,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Json:
        """Push an image without layers. Return its descriptor."""
        fields = {"Entrypoint": entrypoint, "Cmd": command} | more
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": fields,
            "rootfs": {"type": "layers", "diff_ids": []},
        }
        described = self._push_blob(repository, json.dumps(config).encode(), headers or {}) | {"mediaType": kinds[1]}
        manifest = {"schemaVersion": 2, "mediaType": kinds[0], "config": described, "layers": []}
        return self.push_manifest(repository, version, kinds[0], manifest, headers or {})

    def push_manifest(self, repository: str, version: str, kind: str, manifest: Json, headers: dict[str, str]) -> Json:
        data = json.dumps(manifest).encode()
        path = f"/v2/{repository}/manifests/{version}"
        self._ask("PUT", path, data, headers | {"Content-Type": kind}, expected=201)
        return {"mediaType": kind, "digest": _digest(data), "size": len(data)}

    def _push_blob(self, repository: str, data: bytes, headers: dict[str, str]) -> Json:
        digest = _digest(data)
        location = self._ask("POST", f"/v2/{repository}/blobs/uploads/", b"", headers, expected=202)
        target = urlsplit(location)
        self._ask("PUT", f"{target.path}?{target.query}&digest={digest}", data, headers, expected=201)
        return {"digest": digest, "size": len(data)}

    def _ask(self, method: str, path: str, data: bytes, headers: dict[str, str], expected: int) -> str:
        connection = self._connection()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        assert answer.status == expected, said
        return answer.headers.get("Location") or ""

    def _connection(self) -> http.client.HTTPConnection:
        if self._authority is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            assert self._process.poll() is None, "docker-registry has ended"
            return False
        return True


def passwords(folder: Path) -> Json:
    """Return the `auth` of a registry that asks for USER and PASSWORD."""
    file = folder / "htpasswd"
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["htpasswd", "-Bbn", USER, PASSWORD], capture_output=True, check=True)
    file.write_bytes(done.stdout)
    return {"htpasswd": {"realm": "test", "path": str(file)}}


def basic(user: str = USER, password: str = PASSWORD) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class TokenServer:
    """A server that makes tokens for a registry: for USER and PASSWORD, and for the identity token IDENTITY.

    asked: the query or form of each request, with the method and the Authorization header
    """

    IDENTITY = "an-identity-token"
    ISSUER, SERVICE = "issuer of tests", "registry of tests"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key, self._certificate = folder / "token.key", folder / "token.crt"
        key = ("-newkey", "rsa:2048", "-nodes", "-keyout", str(self._key))
        out = ("-days", "2", "-subj", "/CN=tokens", "-out", str(self._certificate))
        subprocess.run(["openssl", "req", "-x509", *key, *out], check=True, capture_output=True)
        self.asked: list[dict[str, str]] = []
        self._server = _Tokens(("127.0.0.1", 0), self)
        self.realm = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def auth(self) -> Json:
        """The `auth` of the registry that accepts these tokens."""
        given = {"realm": self.realm, "service": self.SERVICE, "issuer": self.ISSUER}
        return {"token": given | {"rootcertbundle": str(self._certificate)}}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, repository: str, *actions: str) -> str:
        """Return a token for a repository, signed as the registry expects."""
        der = ssl.PEM_cert_to_DER_cert(self._certificate.read_text())
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        now = int(time.time())
        access = [{"type": "repository", "name": repository, "actions": list(actions)}]
        claims = {"iss": self.ISSUER, "sub": USER, "aud": self.SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now}
        text = ".".join(_url64(json.dumps(part).encode()) for part in (head, claims | {"jti": "1", "access": access}))
        sign = ["openssl", "dgst", "-sha256", "-sign", str(self._key)]
        signature = subprocess.run(sign, input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{_url64(signature)}"


class _Tokens(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], owner: TokenServer) -> None:
        super().__init__(address, _TokenHandler)
        self.owner = owner


class _TokenHandler(BaseHTTPRequestHandler):
    server: _Tokens

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query, self.headers.get("Authorization") == basic())

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(form, TokenServer.IDENTITY in form)

    def _answer(self, query: str, is_known: bool) -> None:
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        header = self.headers.get("Authorization") or ""
        self.server.owner.asked.append(asked | {"method": self.command, "authorization": header})
        _, repository, actions = asked["scope"].split(":")
        token = self.server.owner.token(repository, *actions.split(","))
        data = json.dumps({"token": token} if is_known else {"errors": []}).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
