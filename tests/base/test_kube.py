"""The client of the API server: where its credentials come from, and how it classifies errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.base.kube import KubeClient
from launcher.base.kube_credentials import Kubeconfig, ServiceAccount
from launcher.base.kube_errors import ApiError, BadCredentials, Denied, Expired, Refused, Transient
from launcher.errors import Exit, Failure
from tests.support.fake_api import Authority, FakeApi
from tests.support.fake_cluster import FakeCluster
from tests.support.pods import pod

DENIED = 'jobs is forbidden: User "me" cannot create resource "jobs"'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    made = FakeCluster(tmp_path)
    yield made
    made.close()


def client(cluster: FakeCluster) -> KubeClient:
    return KubeClient(Kubeconfig(str(cluster.kubeconfig)), None, lambda said, namespace: f"{namespace}: {said}")


@pytest.mark.parametrize(
    ("status", "said", "kind", "code"),
    [
        (400, "unable to parse", Refused, Exit.CONFIG),
        (401, "Unauthorized", BadCredentials, Exit.DENIED),
        (403, DENIED, Denied, Exit.DENIED),
        (403, "exceeded quota", Refused, Exit.CONFIG),
        (404, "not found", Refused, Exit.CONFIG),
        (409, "exists", Refused, Exit.CONFIG),
        (410, "too old", Expired, Exit.CONFIG),
        (429, "later", Transient, Exit.TIMED_OUT),
        (500, "broken", Transient, Exit.TIMED_OUT),
        (503, "restarting", Transient, Exit.TIMED_OUT),
    ],
)
def test_each_error_is_classified_after_one_call_and_keeps_the_servers_message(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, status: int, said: str, kind: type[ApiError], code: Exit
) -> None:
    calls: list[str] = []

    def refuse(verb: str, *rest: object) -> tuple[int, object]:
        calls.append(verb)
        return status, {"message": said}

    monkeypatch.setattr(cluster, "answer", refuse)
    with pytest.raises(ApiError, match=said) as caught:
        client(cluster).create({"kind": "Job", "metadata": {"name": "x"}})
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert calls == ["POST"]


def test_a_forbidden_read_is_denied_with_any_message_of_the_server(cluster: FakeCluster) -> None:
    cluster.refused["GET", "jobs"] = (403, "not now")
    with pytest.raises(Denied, match="ns: not now"):
        client(cluster).list("Job", "a=b")


def test_an_object_that_does_not_exist_is_none_to_get_and_no_error_to_delete(cluster: FakeCluster) -> None:
    asking = client(cluster)
    assert asking.get("Job", "x") is None
    asking.delete("Job", "x")


def test_the_namespace_is_the_given_one_or_that_of_the_kubeconfig(cluster: FakeCluster) -> None:
    assert client(cluster).namespace == "ns"
    assert KubeClient(Kubeconfig(str(cluster.kubeconfig)), "other", str.join).namespace == "other"


def test_a_service_account_sets_the_namespace_and_is_read_again_on_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "pki", "good")
    api = FakeApi(authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    for name, text in (("token", "first"), ("ca.crt", authority.ca.read_text()), ("namespace", "ns\n")):
        (tmp_path / name).write_text(text)
    api.put(pod("x-a"))
    asking = KubeClient(ServiceAccount("mount one", str(tmp_path)), None, lambda said, namespace: said)
    assert len(asking.list("Pod", "job-name=x")) == 1
    api.token = "second"
    with pytest.raises(BadCredentials, match=rf"credentials in {tmp_path}/token .*service account still exists"):
        asking.list("Pod", "job-name=x")
    (tmp_path / "token").write_text("second")
    asking.connect()
    assert len(asking.list("Pod", "job-name=x")) == 1
    api.stop()


def test_without_a_service_account_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=rf"no cluster is configured: .*{tmp_path}.*: mount one") as caught:
        KubeClient(ServiceAccount("mount one", str(tmp_path)), "ns", str.join)
    assert caught.value.code is Exit.CONFIG
