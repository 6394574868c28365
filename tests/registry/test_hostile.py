"""A registry that is hostile: it can neither hang a command, fill its memory, get credentials nor reach other hosts."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from launcher.registry import addresses
from launcher.registry.addresses import LOOPBACK, PRIVATE, PUBLIC
from launcher.registry.errors import Unreadable
from launcher.registry.image import ImageConfig, read_image
from launcher.registry.reference import parse
from tests.support.hostile_registry import HostileRegistry, reply

Serve = Callable[[Callable[[BaseHTTPRequestHandler], None]], HostileRegistry]

CONFIG = json.dumps({"config": {"Entrypoint": ["python3"]}}).encode()
SECRET = base64.b64encode(b"me:secret").decode()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield a function that starts a server. All servers end with the test."""
    servers: list[HostileRegistry] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> HostileRegistry:
        servers.append(HostileRegistry(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def secret(docker_config: Path) -> Callable[[HostileRegistry], None]:
    """Return a function that gives the user credentials for a registry."""

    def log_in(registry: HostileRegistry) -> None:
        docker_config.write_text(json.dumps({"auths": {registry.host: {"auth": SECRET}}}))

    return log_in


def read(registry: HostileRegistry, host: str | None = None, seconds: float = 20.0) -> ImageConfig:
    image = f"{host or registry.host}/team/paddle:1"
    return read_image(parse(image), frozenset({"registry.test"}), seconds=seconds)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def manifest(config: bytes = CONFIG, **more: Any) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": {"digest": digest(config)}, "layers": []} | more).encode()


def served(config: bytes = CONFIG, first: bytes | None = None) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return the answers of a registry with one image."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, 200, config if "/blobs/" in handler.path else manifest(config) if first is None else first)

    return answer


def test_the_server_of_these_tests_can_serve_an_image(serve: Serve) -> None:
    assert read(serve(served())) == ImageConfig(("python3",), ())


@pytest.mark.parametrize("length", [{}, {"Content-Length": "99999999999"}], ids=["unknown", "told"])
def test_an_endless_answer_fills_no_memory(serve: Serve, length: dict[str, str]) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in length.items():
            handler.send_header(name, value)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * 65536)

    registry = serve(endless)
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="the answer has more than 4194304 bytes"):
            read(registry)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def slow_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.05)


def slow_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"X")
        time.sleep(0.05)


def silent(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(30)


@pytest.mark.parametrize("answer", [slow_body, slow_headers, silent])
def test_a_registry_that_dawdles_is_left(serve: Serve, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
    registry = serve(answer)
    began = time.monotonic()
    with pytest.raises(Unreadable, match=r"(does not answer in time|timed out)"):
        read(registry, seconds=1.0)
    assert time.monotonic() - began < 20


def test_a_compressed_answer_is_not_unpacked(serve: Serve) -> None:
    registry = serve(lambda handler: reply(handler, 200, b"\x1f\x8b" + bytes(1000), Content_Encoding="gzip"))
    with pytest.raises(Unreadable, match="its manifest is no JSON object"):
        read(registry)
    assert registry.asked[-1].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"config": "x"}',
        b'{"config": {"digest": 3}}',
        b'{"config": {"digest": "sha256:../../../etc/passwd"}}',
        b'{"schemaVersion": 1, "fsLayers": []}',
        b'{"manifests": {}}',
        b'{"manifests": [[], {"platform": "linux"}, {"platform": {"os": "linux", "architecture": "amd64"}}]}',
        b'{"mediaType": {"a": []}}',
    ],
    ids=repr,
)
def test_a_manifest_that_is_none_is_refused(serve: Serve, first: bytes) -> None:
    registry = serve(served(first=first))
    with pytest.raises(Unreadable, match=r"(expected an image|is no JSON object|has no image for linux/amd64)"):
        read(registry)


def test_an_index_of_indexes_ends(serve: Serve) -> None:
    platform = {"platform": {"os": "linux", "architecture": "amd64"}}
    inner = json.dumps({"manifests": [platform | {"digest": digest(b"x")}]}).encode()
    outer = json.dumps({"manifests": [platform | {"digest": digest(inner)}]}).encode()
    registry = serve(lambda handler: reply(handler, 200, inner if "sha256" in handler.path else outer))
    with pytest.raises(Unreadable, match="expected an image of OCI or of Docker's schema 2"):
        read(registry)
    assert len([asked for asked in registry.asked if "manifests" in asked.path]) == 2


def test_a_configuration_with_another_digest_is_refused(serve: Serve) -> None:
    registry = serve(served(config=b"{}", first=manifest(CONFIG)))
    with pytest.raises(Unreadable, match="its configuration does not have the digest sha256:"):
        read(registry)


@pytest.mark.parametrize("words", [["a", 3], "python3", {"a": 1}, ["\ud800"], ["a\0b"], [None]], ids=repr)
def test_words_that_no_process_can_get_are_refused(serve: Serve, words: object) -> None:
    registry = serve(served(json.dumps({"config": {"Entrypoint": words}}).encode()))
    with pytest.raises(Unreadable, match="its configuration: Entrypoint: expected a list of texts"):
        read(registry)


def test_redirects_end(serve: Serve) -> None:
    registry = serve(lambda handler: reply(handler, 307, Location=f"{handler.path}x"))
    with pytest.raises(Unreadable, match="more than 5 redirects"):
        read(registry)
    assert len(registry.asked) == 6


def test_a_redirect_takes_no_credentials_to_another_host(
    serve: Serve, secret: Callable[[HostileRegistry], None]
) -> None:
    storage = serve(lambda handler: reply(handler, 200, CONFIG))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "Authorization" not in handler.headers:
            reply(handler, 401, WWW_Authenticate='Basic realm="x"')
        elif "/blobs/" in handler.path:
            reply(handler, 307, Location=f"http://localhost:{storage.port}/blob")
        else:
            reply(handler, 200, manifest())

    registry = serve(answer)
    secret(registry)
    assert read(registry) == ImageConfig(("python3",), ())
    assert registry.asked[-1].headers["Authorization"] == f"Basic {SECRET}"
    assert [asked.path for asked in storage.asked] == ["/blob"]
    assert "Authorization" not in storage.asked[0].headers


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://localhost/x",
        "http://registry.example/x",
        "//[",
        "http://",
        "https://[::1",
        "gopher:x",
    ],
)
@pytest.mark.parametrize("way", ["redirect", "realm"])
def test_an_address_that_is_no_https_is_refused(serve: Serve, way: str, location: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if way == "redirect":
            reply(handler, 307, Location=location)
        else:
            reply(handler, 401, WWW_Authenticate=f'Bearer realm="{location}",service="x"')

    registry = serve(answer)
    with pytest.raises(Unreadable, match=r"(expected https|expected a host|Invalid IPv6 URL|no scheme|5 redirects)"):
        read(registry)


@pytest.mark.parametrize("way", ["redirect", "realm"])
@pytest.mark.parametrize("reach", [PUBLIC, PRIVATE])
def test_a_registry_elsewhere_does_not_reach_this_machine(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, way: str, reach: str
) -> None:
    """The registry has an address that counts as another machine's. It names a service of this machine."""
    inner = serve(lambda handler: reply(handler, 200, b'{"token": "t"}'))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        url = f"http://localhost:{inner.port}/private"
        if way == "redirect":
            reply(handler, 307, Location=url)
        else:
            reply(handler, 401, WWW_Authenticate=f'Bearer realm="{url}"')

    registry = serve(answer)
    found = {"registry.test": ["127.0.0.1"], "localhost": ["127.0.0.2"]}
    monkeypatch.setattr(addresses, "resolve", lambda host, port: found[host])
    monkeypatch.setattr(addresses, "reach", lambda address: reach if address == "127.0.0.1" else LOOPBACK)
    with pytest.raises(Unreadable, match=r"names the server localhost at 127\.0\.0\.2: expected a public address"):
        read(registry, f"registry.test:{registry.port}")
    assert len(registry.asked) == 1
    assert inner.asked == []


@pytest.mark.parametrize("found", [["127.0.0.1", "127.0.0.3"], ["127.0.0.3", "127.0.0.1"]], ids=["after", "before"])
def test_a_registry_that_also_has_an_address_of_this_machine_does_not_reach_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    """Its name leads to its public address, which answers, and to 127.0.0.3 of this machine, where nothing listens."""
    inner = serve(lambda handler: reply(handler, 200, b"{}"))
    registry = serve(lambda handler: reply(handler, 307, Location=f"http://localhost:{inner.port}/private"))
    known = {"registry.test": found, "localhost": ["127.0.0.2"]}
    monkeypatch.setattr(addresses, "resolve", lambda host, port: known[host])
    monkeypatch.setattr(addresses, "reach", lambda address: PUBLIC if address == "127.0.0.1" else LOOPBACK)
    with pytest.raises(Unreadable, match=r"names the server localhost at 127\.0\.0\.2: expected a public address"):
        read(registry, f"registry.test:{registry.port}")
    assert inner.asked == []


def test_an_address_of_the_inner_network_is_not_asked_through_a_proxy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(lambda handler: reply(handler, 200, b"{}"))
    registry = serve(lambda handler: reply(handler, 307, Location="https://169.254.169.254/latest/meta-data"))
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(Unreadable, match=r"names the server 169\.254\.169\.254 at 169\.254\.169\.254"):
        read(registry)
    assert proxy.asked == []


def test_a_second_answer_of_the_name_server_changes_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was checked is the one that is asked."""
    registry = serve(served())
    answers = iter([["127.0.0.1"]])
    monkeypatch.setattr(addresses, "resolve", lambda host, port: next(answers, ["127.0.0.1"]))
    assert read(registry, f"registry.test:{registry.port}") == ImageConfig(("python3",), ())
    assert registry.asked[0].headers["Host"] == f"registry.test:{registry.port}"


def test_the_metadata_service_of_a_cloud_is_never_asked() -> None:
    with pytest.raises(Unreadable, match=r"169\.254\.169\.254"):
        read_image(parse("169.254.169.254/latest/meta-data"), frozenset({"169.254.169.254"}), seconds=5.0)


@pytest.mark.parametrize("separate", [False, True], ids=["one header", "two headers"])
@pytest.mark.parametrize("order", [0, 1])
def test_of_two_logins_the_token_is_taken(
    serve: Serve, secret: Callable[[HostileRegistry], None], order: int, separate: bool
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        host, given = handler.headers["Host"], handler.headers.get("Authorization", "")
        if handler.path.startswith("/token"):
            reply(handler, 200, b'{"access_token": "abc"}')
        elif given == "Bearer abc":
            served()(handler)
        else:
            logins = [f'Bearer realm="http://{host}/token",service="s"', 'Basic realm="x"']
            wanted = logins if order == 0 else logins[::-1]
            handler.send_response(401)
            for login in wanted if separate else [", ".join(wanted)]:
                handler.send_header("WWW-Authenticate", login)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    registry = serve(answer)
    secret(registry)
    assert read(registry) == ImageConfig(("python3",), ())


@pytest.mark.parametrize("challenge", ["", "Negotiate", "Digest realm=x", "x" * 60_000])
def test_an_unknown_login_is_named(serve: Serve, challenge: str) -> None:
    registry = serve(lambda handler: reply(handler, 401, WWW_Authenticate=challenge))
    with pytest.raises(Unreadable, match="asks for a login of an unknown kind"):
        read(registry)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"token": 3}', b'{"token": "a\\r\\nX: y"}', b'{"token": ""}'], ids=repr
)
def test_a_token_that_is_none_is_refused(serve: Serve, body: bytes) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.startswith("/token"):
            reply(handler, 200, body)
        else:
            host = handler.headers["Host"]
            reply(handler, 401, WWW_Authenticate=f'Bearer realm="http://{host}/token?a=b",service="s"')

    registry = serve(answer)
    with pytest.raises(Unreadable, match="expected JSON with a token"):
        read(registry)
    assert registry.asked[-1].path == "/token?a=b&service=s&scope=repository%3Ateam%2Fpaddle%3Apull"


def test_a_token_server_gets_credentials_but_its_redirects_do_not(
    serve: Serve, secret: Callable[[HostileRegistry], None]
) -> None:
    other = serve(lambda handler: reply(handler, 200, b'{"token": "t"}'))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.startswith("/token"):
            reply(handler, 307, Location=f"http://localhost:{other.port}/token")
        else:
            reply(handler, 401, WWW_Authenticate=f'Bearer realm="http://{handler.headers["Host"]}/token"')

    registry = serve(answer)
    secret(registry)
    with pytest.raises(Unreadable, match=r"makes no token with your credentials \(HTTP 307\)"):
        read(registry)
    assert other.asked == []
