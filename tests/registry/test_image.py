"""Read images from docker-registry: its kinds of images, of logins and of encryption."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from launcher.registry import transport
from launcher.registry.errors import Unreadable
from launcher.registry.image import ImageConfig, read_image
from launcher.registry.reference import parse
from tests.support.certificates import server_certificate
from tests.support.connect_proxy import Proxy
from tests.support.image_registry import (
    DOCKER,
    DOCKER_LIST,
    OCI,
    OCI_INDEX,
    PASSWORD,
    USER,
    ImageRegistry,
    TokenServer,
    basic,
    passwords,
)

TRAIN = ImageConfig(("python3", "train.py"), ("--epochs", "1"))


def read(image: str, seconds: float = 60.0) -> ImageConfig:
    return read_image(parse(image), frozenset(), seconds=seconds)


def push(registry: ImageRegistry, repository: str = "team/paddle", **more: object) -> None:
    registry.push(repository, entrypoint=TRAIN.entrypoint, command=TRAIN.command, **more)  # type: ignore[arg-type]


def log_in(docker_config: Path, registry: ImageRegistry, **entry: str) -> None:
    docker_config.write_text(json.dumps({"auths": {registry.host: entry}}))


@pytest.mark.parametrize("kinds", [OCI, DOCKER], ids=["OCI", "Docker"])
def test_entrypoint_and_cmd_of_an_image_are_read(public: ImageRegistry, kinds: tuple[str, str]) -> None:
    push(public, kinds=kinds)
    assert read(f"{public.host}/team/paddle:1") == TRAIN


@pytest.mark.skipif(shutil.which("buildah") is None or os.geteuid() != 0, reason="needs buildah, as root")
def test_an_image_that_buildah_pushes_is_read(public: ImageRegistry, docker_config: Path) -> None:
    docker_config.write_text("{}")  # buildah wants the file to exist
    with tempfile.TemporaryDirectory() as folder:  # buildah wants a short path
        folders = ["--root", f"{folder}/images", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]

        def buildah(*arguments: str) -> str:
            command = ["buildah", *folders, *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout.strip()

        made = buildah("from", "scratch")
        buildah("config", "--entrypoint", json.dumps(TRAIN.entrypoint), "--cmd", " ".join(TRAIN.command), made)
        buildah("commit", "--tls-verify=false", "--quiet", made, f"docker://{public.host}/team/built:1")
        buildah("rm", made)
    assert read(f"{public.host}/team/built:1") == TRAIN


@pytest.mark.parametrize(("kind", "kinds"), [(OCI_INDEX, OCI), (DOCKER_LIST, DOCKER)], ids=["OCI", "Docker"])
def test_the_image_for_linux_and_amd64_is_chosen(public: ImageRegistry, kind: str, kinds: tuple[str, str]) -> None:
    other = public.push("team/many", "arm", entrypoint=["other"], kinds=kinds)
    wanted = public.push("team/many", "amd", entrypoint=TRAIN.entrypoint, command=TRAIN.command, kinds=kinds)
    entries = [
        other | {"platform": {"os": "linux", "architecture": "arm64"}},
        wanted | {"platform": {"os": "linux", "architecture": "amd64"}},
    ]
    index = {"schemaVersion": 2, "mediaType": kind, "manifests": entries}
    described = public.push_manifest("team/many", "1", kind, index, {})
    assert read(f"{public.host}/team/many:1") == TRAIN
    assert read(f"{public.host}/team/many:of-no-account@{described['digest']}") == TRAIN
    only = public.push_manifest("team/many", "2", kind, index | {"manifests": entries[:1]}, {})
    with pytest.raises(Unreadable, match="has no image for linux/amd64"):
        read(f"{public.host}/team/many@{only['digest']}")


def test_an_image_that_does_not_exist_is_named(public: ImageRegistry) -> None:
    push(public)
    with pytest.raises(Unreadable, match=f"^{public.host}/team/paddle:2: the registry has no such image"):
        read(f"{public.host}/team/paddle:2")
    with pytest.raises(Unreadable, match="the registry has no such image"):
        read(f"{public.host}/team/nothing")


def test_a_registry_that_does_not_run_is_named() -> None:
    with pytest.raises(Unreadable, match=r"^localhost:1: cannot be read: Connection refused"):
        read("localhost:1/team/paddle")


def test_a_password_is_used_if_the_registry_asks_for_it(tmp_path: Path, docker_config: Path) -> None:
    registry = ImageRegistry(tmp_path / "registry", passwords(tmp_path))
    try:
        push(registry, headers={"Authorization": basic()})
        image = f"{registry.host}/team/paddle:1"
        with pytest.raises(
            Unreadable, match=f"denies reading team/paddle without credentials: `docker login {registry.host}"
        ):
            read(image)
        log_in(docker_config, registry, auth=basic(password="wrong").split()[1])
        with pytest.raises(Unreadable, match="denies reading team/paddle with your credentials") as caught:
            read(image)
        assert "wrong" not in str(caught.value)
        log_in(docker_config, registry, auth=basic().split()[1])
        assert read(image) == TRAIN
        log_in(docker_config, registry, username=USER, password=PASSWORD)
        assert read(image) == TRAIN
    finally:
        registry.close()


def test_a_token_is_asked_for_this_repository_only(tmp_path: Path, docker_config: Path) -> None:
    tokens = TokenServer(tmp_path / "tokens")
    registry = ImageRegistry(tmp_path / "registry", tokens.auth)
    try:
        push(registry, headers={"Authorization": f"Bearer {tokens.token('team/paddle', 'push', 'pull')}"})
        image = f"{registry.host}/team/paddle:1"
        with pytest.raises(Unreadable, match=r"makes no token without credentials: `docker login .*HTTP 401"):
            read(image)
        log_in(docker_config, registry, auth=basic().split()[1])
        assert read(image) == TRAIN
        asked = {"service": TokenServer.SERVICE, "scope": "repository:team/paddle:pull", "method": "GET"}
        assert tokens.asked[-1] == asked | {"authorization": basic()}
        log_in(docker_config, registry, identitytoken=TokenServer.IDENTITY)
        assert read(image) == TRAIN
        assert tokens.asked[-1]["grant_type"] == "refresh_token"
        assert tokens.asked[-1]["refresh_token"] == TokenServer.IDENTITY
        assert len(tokens.asked) == 3, "one token for manifest and configuration"
    finally:
        registry.close()
        tokens.close()


def test_a_certificate_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = server_certificate(tmp_path, "localhost")
    registry = ImageRegistry(tmp_path / "registry", tls=(certificate, key))
    try:
        push(registry)
        image = f"{registry.host}/team/paddle:1"
        with pytest.raises(Unreadable, match=r"^localhost: certificate verify failed: self-signed.*ca\.crt"):
            read(image)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert read(image.replace("localhost", "LOCALHOST")) == TRAIN
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setattr(transport, "_CERTIFICATES", str(tmp_path / "certs.d"))
        engine = tmp_path / "certs.d" / registry.host
        engine.mkdir(parents=True)
        (engine / "ca.crt").write_bytes(certificate.read_bytes())
        assert read(image) == TRAIN
        (engine / "spoiled.crt").write_text("no certificate")
        with pytest.raises(Unreadable, match=r"spoiled\.crt: cannot be read as certificates"):
            read(image)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(Unreadable, match="verify failed: IP address mismatch"):
            read(image.replace("localhost", "127.0.0.1"))
    finally:
        registry.close()


def test_a_registry_is_read_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = server_certificate(tmp_path, "registry.test", "other.test")
    registry = ImageRegistry(tmp_path / "registry", tls=(certificate, key))
    proxy = Proxy(registry.port)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass%20word@127.0.0.1:{proxy.port}")
    try:
        push(registry)
        assert read("registry.test/team/paddle:1") == TRAIN
        assert set(proxy.asked) == {("registry.test:443", basic("me", "pass word"))}
        with pytest.raises(Unreadable, match=r"verify failed"):
            read("wrong.test/team/paddle:1")
        monkeypatch.setenv("NO_PROXY", "other.test")
        with pytest.raises(Unreadable, match=r"^other\.test: no such host here"):
            read("other.test/team/paddle:1")
    finally:
        proxy.close()
        registry.close()
