"""Errors of the cluster and of the kubeconfig, as a user reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import Exit
from launcher.job import Failure
from tests.support.fake_cluster import FakeCluster
from tests.support.submitted import JOB


def test_a_missing_right_is_named_with_the_manifest_that_grants_it(cluster: FakeCluster) -> None:
    message = (
        'jobs.batch is forbidden: User "me" cannot create resource "jobs" in API group "batch" in the namespace "ns"'
    )
    cluster.refused["POST", "jobs"] = (403, message)
    with pytest.raises(Failure, match=r"cannot create resource .*k8s/submitter") as caught:
        JOB.submit()
    assert caught.value.code == Exit.DENIED


def test_without_a_cluster_the_message_says_what_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(Failure, match=r"KUBECONFIG: '.*/none': no cluster found"):
        JOB.submit()
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Failure, match=r"expected KUBECONFIG or ~/\.kube/config"):
        JOB.submit()


@pytest.mark.parametrize("content", ["a: [", "word", "clusters: 1", ""])
def test_a_broken_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (tmp_path / "broken").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    with pytest.raises(Failure, match=r"KUBECONFIG: '.*/broken'"):
        JOB.submit()


def test_an_api_server_that_does_not_answer_is_named(cluster: FakeCluster) -> None:
    cluster.close()
    with pytest.raises(Failure, match=r"API server http://127\.0\.0\.1:\d+ cannot be reached"):
        JOB.submit()
