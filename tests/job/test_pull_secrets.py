"""`submit` reads an image with the imagePullSecrets of its pods, `render` says that it does not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import Exit
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.image_registry import PASSWORD, USER, ImageRegistry, basic, passwords
from tests.support.render_command import messages, paddle_job, render
from tests.support.rendering import main_container
from tests.support.submitted import command


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """Yield a registry with `team/both`, which wants a password."""
    folder = tmp_path_factory.mktemp("private")
    started = ImageRegistry(folder, passwords(folder))
    started.push("team/both", entrypoint=["python3", "train.py"], headers={"Authorization": basic()})
    yield started
    started.close()


@pytest.fixture(autouse=True)
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's own Docker configuration, which does not exist yet."""
    (tmp_path / "docker").mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return tmp_path / "docker" / "config.json"


def job(private: ImageRegistry, *secrets: str, account: str = "") -> str:
    pod = f"containers: [{{name: paddle, image: '{private.host}/team/both:1'}}]"
    if secrets:
        pod += f", imagePullSecrets: [{', '.join(f'{{name: {name}}}' for name in secrets)}]"
    if account:
        pod += f", serviceAccountName: {account}"
    return paddle_job(f"{{worker: {{replicas: 1, template: {{spec: {{{pod}}}}}}}}}")


def login(registry: str, password: str = PASSWORD) -> Json:
    return {"auths": {registry: {"username": USER, "password": password}}}


def put_secret(cluster: FakeCluster, name: str, config: object, key: str = ".dockerconfigjson") -> None:
    data = {key: base64.b64encode(json.dumps(config).encode()).decode()}
    cluster.put("secrets", {"kind": "Secret", "metadata": {"name": name, "namespace": "ns"}, "data": data})


def submit(tmp_path: Path, text: str, code: int = Exit.COMPLETE) -> str:
    (tmp_path / "job.yaml").write_text(text)
    return command("submit", "--no-inject", str(tmp_path / "job.yaml"), code=code).stderr


def is_submitted(cluster: FakeCluster) -> bool:
    return bool(main_container(cluster.objects["jobs", "job-worker"])["args"] == ["run", "--", "python3", "train.py"])


def test_the_second_secret_has_the_credentials(cluster: FakeCluster, private: ImageRegistry, tmp_path: Path) -> None:
    put_secret(cluster, "other", login("other.test"))
    put_secret(cluster, "ours", login(private.host))
    submit(tmp_path, job(private, "other", "ours"))
    assert is_submitted(cluster)


def test_a_secret_of_the_old_type_is_read(cluster: FakeCluster, private: ImageRegistry, tmp_path: Path) -> None:
    put_secret(cluster, "ours", login(private.host)["auths"], ".dockercfg")
    submit(tmp_path, job(private, "ours"))
    assert is_submitted(cluster)


def test_the_secrets_of_the_service_account_count_if_the_template_has_none(
    cluster: FakeCluster, private: ImageRegistry, tmp_path: Path
) -> None:
    put_secret(cluster, "ours", login(private.host))
    account = {"metadata": {"name": "trainer", "namespace": "ns"}, "imagePullSecrets": [{"name": "ours"}]}
    cluster.put("serviceaccounts", {"kind": "ServiceAccount", **account})
    submit(tmp_path, job(private), Exit.CONFIG)
    submit(tmp_path, job(private, account="trainer"))
    assert is_submitted(cluster)


def test_a_secret_is_read_after_the_users_own_credentials_were_denied(
    cluster: FakeCluster, private: ImageRegistry, tmp_path: Path, docker_config: Path
) -> None:
    put_secret(cluster, "ours", login(private.host))
    docker_config.write_text(json.dumps(login(private.host, "wrong")))
    submit(tmp_path, job(private, "ours"))
    assert is_submitted(cluster)


def test_no_secret_is_read_if_the_users_own_credentials_are_enough(
    cluster: FakeCluster, private: ImageRegistry, tmp_path: Path, docker_config: Path
) -> None:
    docker_config.write_text(json.dumps(login(private.host)))
    cluster.refused["GET", "secrets"] = (403, "no secrets")
    submit(tmp_path, job(private, "ours"))
    assert is_submitted(cluster)


def test_an_error_says_for_each_secret_why_it_does_not_help(
    cluster: FakeCluster, private: ImageRegistry, tmp_path: Path
) -> None:
    put_secret(cluster, "wrong", login(private.host, "a password"))
    put_secret(cluster, "other", login("other.test"))
    put_secret(cluster, "opaque", {}, "password")
    put_secret(cluster, "spoiled", {"auths": {private.host: {"auth": "no base64"}}})
    said = submit(tmp_path, job(private, "wrong", "other", "opaque", "spoiled", "absent"), Exit.CONFIG)
    assert f"denies reading team/both without credentials: `docker login {private.host}`" in said
    assert "imagePullSecret wrong: the registry does not accept its credentials" in said
    assert f"imagePullSecret other: has no credentials for {private.host}" in said
    assert "imagePullSecret opaque: expected a Secret of `kubectl create secret docker-registry`" in said
    assert f"imagePullSecret spoiled: {private.host}: auth: expected user:password in base64" in said
    assert "imagePullSecret absent: namespace ns has no such Secret" in said
    assert "a password" not in said
    assert not cluster.names("jobs")


def test_an_error_names_the_right_that_is_missing(cluster: FakeCluster, private: ImageRegistry, tmp_path: Path) -> None:
    cluster.refused["GET", "secrets"] = (403, "secrets is forbidden")
    said = submit(tmp_path, job(private, "ours"), Exit.CONFIG)
    assert "imagePullSecret ours: the API server does not allow this (HTTP 403: secrets is forbidden)" in said


def test_without_a_cluster_the_error_says_what_is_expected(
    private: ImageRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    said = submit(tmp_path, job(private, "ours"), Exit.CONFIG)
    assert "imagePullSecrets cannot be read: " in said
    assert "expected KUBECONFIG" in said


def test_render_says_that_it_reads_no_secrets(private: ImageRegistry) -> None:
    ended = render(text=job(private, "ours", "other"))
    assert ended.returncode == Exit.CONFIG
    (said,) = messages(ended)
    assert "`render` does not read imagePullSecrets (ours, other)" in said
