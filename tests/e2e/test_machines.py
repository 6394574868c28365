"""A node without power, and an API server that does not answer.

CLUSTER is the command that powers nodes off and on again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.cluster import SIZE, Json, kubectl, until
from tests.e2e.pods import scale
from tests.e2e.training import Training, ignore_consequences

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(
        "CLUSTER" not in os.environ, reason="CLUSTER must name the command that powers nodes off and on again"
    ),
]

SILENCE = 60.0  # seconds until a silent member counts as lost; Kubernetes notices the loss of its node after 40 s


@contextmanager
def powered_off(node: str) -> Iterator[None]:
    """Power a node off without a message: its network is cut before its processes end."""
    number = node.removeprefix("node")
    _machine("inside", number, "ip", "link", "set", "eth0", "down")
    _machine("node-off", number)
    try:
        yield
    finally:
        _machine("node-on", number)


def _machine(*command: str) -> None:
    done = subprocess.run([os.environ["CLUSTER"], *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@contextmanager
def cordoned(node: str) -> Iterator[None]:
    """Keep the scheduler from this node."""
    kubectl("cordon", node)
    try:
        yield
    finally:
        kubectl("uncordon", node)


@contextmanager
def api_server_stopped() -> Iterator[None]:
    """Stop the API server: connections succeed, but no request is answered."""
    (server,) = (process for process in psutil.process_iter() if process.name() == "kube-apiserver")
    server.suspend()
    try:
        yield
    finally:
        server.resume()


def on_nodes_of_their_own(job: Json) -> None:
    """Set one pod per node, and a policy by which only the pod with exit code 76 counts as failed."""
    ignore_consequences(job)
    same = {"matchLabels": {"job-name": job["metadata"]["name"]}}
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": same}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    job["spec"]["template"]["spec"]["affinity"] = affinity


def only_index_0_at_first(job: Json) -> None:
    on_nodes_of_their_own(job)
    job["spec"]["parallelism"] = 1


def nodes_by_rank(training: Training) -> list[str]:
    pods = [member["pod"] for member in training.until_training()]
    return [training.cluster.pod(pod)["spec"]["nodeName"] for pod in pods]


@pytest.mark.timeout(2 * SILENCE + 300)
def test_a_node_without_power_is_named_and_the_other_members_end(training: Training) -> None:
    """One job loses its hub with the node, and the other job loses a member that is not its hub."""
    other = Training(training.cluster, "another-job", training.volume)
    shutil.copytree(training.volume / training.name, training.volume / other.name)
    silence = {"LAUNCHER_SILENCE": str(SILENCE)}
    training.submit(mode="Indexed", change=on_nodes_of_their_own, hold_before=1, **silence)
    node = nodes_by_rank(training)[0]
    with cordoned(node):
        other.submit(mode="Indexed", change=only_index_0_at_first, hold_before=1, **silence)
        until(lambda: [pod for pod in other.pods() if pod["spec"].get("nodeName")], other.pods)
    scale(other, SIZE)
    lost = {training: 0, other: nodes_by_rank(other).index(node)}
    assert lost[other] != 0
    before = {job: job.status() for job in lost}

    with powered_off(node):
        for job, rank in lost.items():
            assert_lost(job, before[job][rank], node)
    for job in lost:
        assert job.until_failed() == "BackoffLimitExceeded"


def assert_lost(job: Training, lost: Json, node: str) -> None:
    """Check that the other members have ended and name the lost member, and that the Job has failed."""
    others = [rank for rank in range(SIZE) if rank != lost["rank"]]

    def ended() -> list[int]:
        return [code for rank in others if (code := job.status()[rank].get("exit_code")) is not None]

    until(lambda: len(ended()) == len(others), job.status, 2 * SILENCE)
    assert ended() == [76, 69]
    for rank in others:
        cause = job.status()[rank]["first_cause"]
        assert (cause["kind"], cause["rank"], cause["pod"]) == ("lost", lost["rank"], lost["pod"])
        assert "was lost without a message" in cause["what"]
    asked = job.status()[others[0]]
    assert f"Kubernetes says: its node {node} does not answer" in asked["first_cause"]["what"]
    # The Job has failed. Kubernetes makes this final as soon as it knows that the lost pod has ended.
    until(lambda: "FailureTarget" in job.cluster.conditions(job.name), job.pods)


def test_launchers_wait_for_an_api_server_that_is_down_and_say_so(training: Training) -> None:
    def wait_for_the_word(job: Json) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        waits = 'until [ -e /home/jobpath/go ]; do sleep 0.1; done; exec "$@" 2>/home/jobpath/said-$HOSTNAME'
        container["command"] = ["sh", "-c", waits, "sh", *container["command"]]

    def all_say(words: str) -> bool:
        return [words in path.read_text() for path in training.volume.glob("said-*")] == [True] * SIZE

    training.submit("--num_passes=2", change=wait_for_the_word)
    until(lambda: [pod["status"]["phase"] for pod in training.pods()] == ["Running"] * SIZE, training.pods)
    with api_server_stopped():
        (training.volume / "go").touch()
        until(lambda: all_say("waiting for peers: the API server has not answered yet"))
        until(lambda: all_say("waiting for peers: the API server https://"))  # followed by the error
        assert not any(training.status())
    training.until_complete()
    assert training.exits() == [0, 0, 0]


def test_an_api_server_that_is_down_does_not_disturb_a_training(training: Training) -> None:
    training.submit("--num_passes=20", hold_before=1, STANDIN_BATCH_SECONDS="0.05").until_training()
    with api_server_stopped():
        training.let_go()
        until(lambda: training.passes_done() == 20)
    training.until_complete()
    assert training.exits() == [0, 0, 0]
