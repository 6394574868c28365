"""Docker Hub, played by a docker-registry: images whose name has no registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.registry.docker_hub import HOST, LOGIN
from launcher.registry.errors import Unreadable
from launcher.registry.image import ImageConfig, read_image
from launcher.registry.reference import parse
from tests.support.certificates import server_certificate
from tests.support.connect_proxy import Proxy
from tests.support.image_registry import ImageRegistry, basic, passwords


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy to a registry that stands for Docker Hub. It has `library/python`, and wants a password."""
    certificate, key = server_certificate(tmp_path, HOST)
    registry = ImageRegistry(tmp_path / "registry", passwords(tmp_path), (certificate, key))
    proxy = Proxy(registry.port)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    try:
        registry.push("library/python", "3.11-slim", command=["python3"], headers={"Authorization": basic()})
        yield proxy
    finally:
        proxy.close()
        registry.close()


def read(image: str) -> ImageConfig:
    return read_image(parse(image), frozenset())


def test_an_image_without_a_registry_is_read_there(hub: Proxy, docker_config: Path) -> None:
    with pytest.raises(Unreadable, match=r"denies reading library/python without credentials: `docker login`"):
        read("python:3.11-slim")
    docker_config.write_text(json.dumps({"auths": {LOGIN: {"auth": basic().split()[1]}}}))
    assert read("python:3.11-slim") == read("docker.io/library/python:3.11-slim") == ImageConfig((), ("python3",))
    assert {host for host, _ in hub.asked} == {f"{HOST}:443"}


@pytest.mark.parametrize("settings", [{"credsStore": "test"}, {"credHelpers": {LOGIN: "test"}}])
def test_a_credential_program_is_asked_for_the_name_of_docker_login(
    hub: Proxy, docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    answer = json.dumps({"Username": "alice", "Secret": "s3cret"})
    program = tmp_path / "docker-credential-test"
    program.write_text(f"#!/bin/sh\nread host; [ $host = {LOGIN} ] && echo '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    docker_config.write_text(json.dumps(settings))
    assert read("python:3.11-slim").command == ("python3",)
