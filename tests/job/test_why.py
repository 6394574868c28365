"""`paddle-launcher why JOB` asks the hub, through kubectl, and another pod if the hub cannot be asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.base import referral
from launcher.base.kube import KubeClient
from launcher.errors import Exit, Failure
from launcher.job.access import connect
from launcher.job.why import explain
from tests.support.fake_cluster import FakeCluster
from tests.support.submitted import JOB, ended, put_pod, running, submit_and_run

SAYS = '#!{python}\nimport sys\nprint("asked", *sys.argv[1:])\n'
FAILS_BY_POD = "#!{python}\nimport sys\nsys.exit({answers!r}.get(sys.argv[3]) or print('the hub says'))\n"
SAYS_BY_POD = "#!{python}\nimport sys\nprint({answers!r}.get(sys.argv[3], 'the hub says'))\n"
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
    cluster: FakeCluster,
    name: str,
    address: str,
    kind: str = "Job",
    command: str = "",
    owner: str = "plain",
    **labels: str,
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
                "ownerReferences": [{"kind": kind, "name": owner, "uid": "u", "controller": True}],
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
    plain_pod(cluster, "words-1", "10.0.0.9", kind="StatefulSet", owner="words")
    plain_pod(cluster, "words-0", "10.0.0.10", kind="StatefulSet", owner="words")
    assert explain(client, "words").startswith("asked exec --namespace=ns words-0 ")


def test_a_pod_without_a_controller_is_asked(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    plain_pod(cluster, "lone", "10.0.0.10", owner="another")
    assert "exec --namespace=ns lone " in explain(client, "lone")


def test_if_the_first_pod_is_gone_the_next_running_pod_is_asked(
    cluster: FakeCluster, client: KubeClient, kubectl: Path
) -> None:
    JOB.submit()
    put_pod(cluster, "pserver", 0, **running())
    pod = put_pod(cluster, "trainer", 1, **running())
    asked = f"asked exec --namespace=ns {pod} --container=paddle -- paddle-launcher why"
    first = "words: trainer 0 does not run: it is waiting has no pod"
    assert explain(client, "words") == f"{first}; pod {pod} says:\n{asked}"


@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_if_the_first_pod_of_plain_manifests_is_gone_the_next_running_pod_is_asked(
    cluster: FakeCluster, client: KubeClient, kubectl: Path, kind: str
) -> None:
    for number in (3, 2):
        index = {"batch.kubernetes.io/job-completion-index": str(number)} if kind == "Job" else {}
        labels = index | ({"job_name": "words"} if kind == "Job" else {})
        plain_pod(cluster, f"words-{number}", "10.0.0.1", kind=kind, owner="words", **labels)
    said = explain(client, "words")
    assert said.startswith("words: pod 0 does not run; pod words-2 says:\nasked exec --namespace=ns words-2 ")


def test_if_the_first_pod_does_not_answer_the_next_running_pod_is_asked(
    cluster: FakeCluster, client: KubeClient, kubectl: Path
) -> None:
    submit_and_run(cluster)
    replace(kubectl, FAILS_BY_POD, answers={"words-trainer-0-a": "no launcher answers"})
    first = "pod words-trainer-0-a cannot be asked: no launcher answers"
    assert explain(client, "words") == f"{first}; pod words-trainer-1-a says:\nthe hub says"


def test_the_first_pod_is_named_if_no_pod_answers(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    submit_and_run(cluster)
    replace(kubectl, FAILS, code=75, said="no launcher answers")
    with pytest.raises(Failure, match="pod words-trainer-0-a cannot be asked: no launcher answers"):
        explain(client, "words")


@pytest.mark.parametrize(
    "answer",
    [
        referral.to_hub("words-trainer-1-a"),
        referral.of_newcomer("the job runs with 2 of 3, and grows when its running pass is saved"),
    ],
)
def test_a_first_pod_that_is_not_the_hub_leads_to_the_hub(
    cluster: FakeCluster, client: KubeClient, kubectl: Path, answer: str
) -> None:
    submit_and_run(cluster)
    replace(kubectl, SAYS_BY_POD, answers={"words-trainer-0-a": answer})
    assert explain(client, "words") == "the hub says"


def test_a_hub_that_cannot_be_asked_is_named(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    submit_and_run(cluster)
    replace(
        kubectl, SAYS_BY_POD, answers=dict.fromkeys(("words-trainer-0-a", "words-trainer-1-a"), referral.to_hub("gone"))
    )
    with pytest.raises(Failure, match="pod gone is gone"):
        explain(client, "words")


def test_a_pod_that_names_one_of_another_job_is_not_followed(
    cluster: FakeCluster, client: KubeClient, kubectl: Path
) -> None:
    submit_and_run(cluster)
    other = put_pod(cluster, "trainer", 0, job="secret", **running())
    answers = {"words-trainer-0-a": referral.to_hub(other), "words-trainer-1-a": "trains", other: "a secret"}
    replace(kubectl, SAYS_BY_POD, answers=answers)
    assert explain(client, "words") == "trains"


def test_two_pods_that_name_each_other_end_the_search(cluster: FakeCluster, client: KubeClient, kubectl: Path) -> None:
    submit_and_run(cluster)
    names = ["words-trainer-0-a", "words-trainer-1-a"]
    replace(kubectl, SAYS_BY_POD, answers=dict(zip(names, map(referral.to_hub, reversed(names)), strict=True)))
    assert explain(client, "words") == referral.to_hub(names[0])


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
