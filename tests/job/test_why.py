"""`paddle-launcher why JOB` asks the launcher of rank 0, through kubectl."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.base.kube import KubeClient
from launcher.errors import Exit, Failure
from launcher.job.access import connect
from launcher.job.why import explain
from tests.support.fake_cluster import FakeCluster
from tests.support.submitted import JOB, ended, put_pod, submit_and_run

SAYS = '#!{python}\nimport sys\nprint("asked", *sys.argv[1:])\n'
FAILS = "#!{python}\nimport sys\nprint({said!r}, file=sys.stderr)\nsys.exit({code})\n"


@pytest.fixture
def client(cluster: FakeCluster) -> KubeClient:
    return connect("ns")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in of kubectl that prints its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "kubectl"
    replace(path, SAYS)
    monkeypatch.setenv("PATH", str(folder))
    return path


def replace(path: Path, text: str, **values: Any) -> None:
    path.write_text(text.format(python=sys.executable, **values))
    path.chmod(0o755)


def test_the_launcher_in_the_pod_of_rank_0_is_asked(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    submit_and_run(cluster)
    pod = put_pod(cluster, "trainer", 0, suffix="b", running={"startedAt": "2026-11-18T10:00:00Z"})
    asked = f"asked exec --namespace=ns {pod} --container=paddle -- paddle-launcher why"
    assert explain(client, "words") == asked
    assert JOB.why() == asked


def test_a_rank_0_that_does_not_run_is_named_with_its_reason(
    cluster: FakeCluster, client: KubeClient, kubectl: Path
) -> None:
    JOB.submit()
    put_pod(cluster, "trainer", 0, waiting={"reason": "ErrImagePull"})
    with pytest.raises(Failure, match=r"words: trainer 0 does not run: it is waiting .*ErrImagePull"):
        explain(client, "words")
    put_pod(cluster, "trainer", 0, **ended(1, "exit code 1: it died"))
    with pytest.raises(Failure, match=r"words: trainer 0 does not run: it is failed .*it died"):
        explain(client, "words")


def plain_pod(
    cluster: FakeCluster, name: str, address: str, kind: str = "Job", command: str = "", **labels: str
) -> None:
    container: dict[str, Any] = {"name": "train"} | ({"command": [command, "run"]} if command else {})
    state = {"running": {"startedAt": "2026-11-18T10:00:00Z"}}
    cluster.put(
        "pods",
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "labels": {key.replace("_", "-"): value for key, value in labels.items()},
                "ownerReferences": [{"kind": kind, "name": "plain", "uid": "u", "controller": True}],
            },
            "spec": {"containers": [container]},
            "status": {
                "phase": "Running",
                "podIP": address,
                "containerStatuses": [{"name": "train", "state": state}],
            },
        },
    )


def test_of_a_job_without_indices_the_pod_with_the_lowest_address_is_asked(
    cluster: FakeCluster, client: KubeClient, kubectl: Path
) -> None:
    plain_pod(cluster, "plain-x", "10.0.0.10", job_name="plain")
    plain_pod(cluster, "plain-y", "10.0.0.9", job_name="plain", command="/opt/launcher/paddle-launcher")
    assert explain(client, "plain").endswith("plain-y --container=train -- /opt/launcher/paddle-launcher why")


def test_of_a_statefulset_the_first_pod_is_asked(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    plain_pod(cluster, "words-0", "10.0.0.10", kind="StatefulSet")
    assert "exec --namespace=ns words-0 " in explain(client, "words")


def test_a_job_that_does_not_exist_is_refused(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    with pytest.raises(Failure, match="nonesuch: there is no such job") as raised:
        explain(client, "nonesuch")
    assert raised.value.code == Exit.NO_INPUT


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (1, 'Error from server (Forbidden): cannot create resource "pods/exec"', Exit.DENIED),
        (75, "no launcher answers", Exit.TIMED_OUT),
        (1, "error: unable to upgrade connection", Exit.TIMED_OUT),
    ],
)
def test_the_reason_of_kubectl_is_shown(
    cluster: FakeCluster, client: KubeClient, kubectl: Path, code: int, said: str, expected: Exit
) -> None:
    submit_and_run(cluster)
    replace(kubectl, FAILS, code=code, said=said)
    with pytest.raises(Failure, match="cannot be asked") as raised:
        explain(client, "words")
    assert raised.value.code == expected
    assert said in raised.value.message


def test_without_kubectl_the_command_to_run_elsewhere_is_shown(
    cluster: FakeCluster, client: KubeClient, kubectl: Path
) -> None:
    submit_and_run(cluster)
    os.unlink(kubectl)
    with pytest.raises(Failure, match="kubectl is not installed here: where it is, run kubectl exec") as raised:
        explain(client, "words")
    assert raised.value.code == Exit.CONFIG
