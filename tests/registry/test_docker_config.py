"""The user's credentials: the file of `docker login`, and credential programs."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from launcher.registry import docker_config as credentials
from launcher.registry.docker_config import read_credentials
from launcher.registry.errors import Unreadable
from launcher.registry.keyring import Credentials
from launcher.registry.reference import parse
from tests.support.jobs import until
from tests.support.supervising import alive

HOST = "registry.test:5000"
IMAGE = parse(f"{HOST}/team/paddle:1")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(docker_config: Path, content: Any) -> None:
    docker_config.write_text(content if isinstance(content, str) else json.dumps(content))


def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put the program docker-credential-test into the PATH."""
    program = tmp_path / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_without_a_file_there_are_no_credentials() -> None:
    assert read_credentials(IMAGE) is None


@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v1/", f"{HOST}/v2", HOST.upper()])
def test_an_entry_may_be_a_host_or_a_url(docker_config: Path, key: str) -> None:
    write(docker_config, {"auths": {"other.test": {"auth": encoded("x:y")}, key: {"auth": encoded("me:a:b")}}})
    found = read_credentials(IMAGE)
    assert found == Credentials("me", "a:b")
    assert found.basic == f"Basic {encoded('me:a:b')}"


@pytest.mark.parametrize("key", ["registry.test", "registry.test:5001", "x.registry.test:5000"])
def test_credentials_of_another_host_are_not_used(docker_config: Path, key: str) -> None:
    write(docker_config, {"auths": {key: {"auth": encoded("me:secret")}}})
    assert read_credentials(IMAGE) is None


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '"text"',
        "[" * 100_000,
        '{"auths": {"registry.test:5000": {"auth": "no base64: c2VjcmV0"}}}',
        "x" * (1 << 21),
    ],
    ids=["cut", "a list", "a text", "deep", "auth", "large"],
)
def test_a_spoiled_file_is_named_and_no_secret_is_told(docker_config: Path, content: str) -> None:
    write(docker_config, content)
    with pytest.raises(Unreadable, match=f"^{docker_config}: ") as caught:
        read_credentials(IMAGE)
    assert "c2VjcmV0" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(docker_config: Path) -> None:
    docker_config.mkdir()
    with pytest.raises(Unreadable, match=f"^{docker_config}: cannot be read: Is a directory"):
        read_credentials(IMAGE)


@pytest.mark.parametrize("field", ["credHelpers", "credsStore"])
def test_a_credential_program_gets_the_host_and_answers(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    helper(tmp_path, monkeypatch, 'read host; echo "{\\"Username\\": \\"$host\\", \\"Secret\\": \\"$1\\"}"')
    write(docker_config, {"credHelpers": {HOST: "test"}} if field == "credHelpers" else {"credsStore": "test"})
    assert read_credentials(IMAGE) == Credentials(HOST, "get")


def test_a_credential_program_may_answer_with_an_identity_token(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path, monkeypatch, """echo '{"Username": "<token>", "Secret": "long"}'""")
    write(docker_config, {"credsStore": "test"})
    assert read_credentials(IMAGE) == Credentials("", "", "long")


def test_the_file_is_used_if_the_credential_program_knows_nothing(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path, monkeypatch, "echo credentials not found in native keychain; exit 1")
    write(docker_config, {"credsStore": "test", "auths": {HOST: {"auth": encoded("me:secret")}}})
    assert read_credentials(IMAGE) == Credentials("me", "secret")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo the keychain is locked; exit 1", "failed for registry.test:5000: the keychain is locked"),
        ("echo nothing", "no credentials in JSON"),
        ("echo '{}'", "no credentials in JSON"),
    ],
)
def test_a_credential_program_that_fails_is_named(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    helper(tmp_path, monkeypatch, script)
    write(docker_config, {"credsStore": "test"})
    with pytest.raises(Unreadable, match=f"^docker-credential-test, which {docker_config} names, .*{said}"):
        read_credentials(IMAGE)


def test_a_credential_program_that_does_not_end_is_killed_with_its_children(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path, monkeypatch, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setattr(credentials, "_HELPER_SECONDS", 1.0)
    write(docker_config, {"credsStore": "test"})
    with pytest.raises(Unreadable, match="docker-credential-test: did not answer for"):
        read_credentials(IMAGE)
    child = int((tmp_path / "child").read_text())
    until(lambda: not alive(child), what="the kernel has ended the child")


@pytest.mark.parametrize("name", ["../evil", "a b", "", "a/b", "$(x)"])
def test_a_program_outside_the_path_is_never_run(docker_config: Path, name: str) -> None:
    write(docker_config, {"credHelpers": {HOST: name or "/"}})
    with pytest.raises(Unreadable, match="expected the end of a program's name"):
        read_credentials(IMAGE)


def test_a_missing_credential_program_is_named(docker_config: Path) -> None:
    write(docker_config, {"credsStore": "nobody-has-this"})
    with pytest.raises(Unreadable, match=r"^docker-credential-nobody-has-this: cannot be run: No such file"):
        read_credentials(IMAGE)
