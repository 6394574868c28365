"""A node without power, and an API server that is away: what only whoever runs the cluster's machines can bring about.

CLUSTER is the command that powers nodes off and on again.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.cluster import SIZE, Json, until
from tests.e2e.training import SLOW, Training, ignore_consequences

pytestmark = pytest.mark.skipif(
    "CLUSTER" not in os.environ, reason="CLUSTER must name the command that powers nodes off and on again"
)

OUTAGE = 30.0  # seconds
SILENCE = 60.0  # seconds until a member that says nothing counts as lost; Kubernetes needs 40 to miss its node


@contextmanager
def powered_off(node: str) -> Iterator[None]:
    """Without a goodbye: its network goes before its processes do."""
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
def api_server_stopped() -> Iterator[None]:
    """For as long as an outage takes: connections are made, and nothing answers."""
    (server,) = (process for process in psutil.process_iter() if process.name() == "kube-apiserver")
    since = time.monotonic()
    server.suspend()
    try:
        yield
        until(lambda: time.monotonic() > since + OUTAGE)
    finally:
        server.resume()


def on_nodes_of_their_own(job: Json) -> None:
    """And with a policy by which only the one who stands for the lost counts: no other's end fails the Job."""
    ignore_consequences(job)
    same = {"matchLabels": {"job-name": job["metadata"]["name"]}}
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": same}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    job["spec"]["template"]["spec"]["affinity"] = affinity


@pytest.mark.timeout(2 * SILENCE + 180)
@pytest.mark.parametrize("lost", [2, 0], ids=["a member", "the hub"])
def test_a_node_without_power_is_named_and_ends_the_others(training: Training, lost: int) -> None:
    training.submit(
        *SLOW, mode="Indexed", change=on_nodes_of_their_own, LAUNCHER_SILENCE=str(SILENCE), STANDIN_BATCH_SECONDS="0.05"
    )
    pod = training.until_training()[lost]["pod"]
    node = training.cluster.get("pod", pod)["spec"]["nodeName"]
    others = [rank for rank in range(SIZE) if rank != lost]

    def ended() -> list[int]:
        return [code for rank in others if (code := training.status()[rank].get("exit_code")) is not None]

    with powered_off(node):
        until(lambda: len(ended()) == len(others), training.status, 2 * SILENCE)
        assert ended() == [76, 69]
        for rank in others:
            cause = training.status()[rank]["first_cause"]
            assert (cause["kind"], cause["rank"], cause["pod"]) == ("lost", lost, pod)
            assert "was lost without a word" in cause["what"]
        asked = training.status()[others[0]]
        assert f"Kubernetes says: its node {node} does not answer" in asked["first_cause"]["what"]
        # It has failed, which Kubernetes makes final once the lost pod is known to have ended.
        until(lambda: "FailureTarget" in training.cluster.conditions(training.name), training.pods)
    assert training.until_failed() == "BackoffLimitExceeded"


def test_launchers_wait_for_an_api_server_that_is_away_and_say_so(training: Training) -> None:
    def wait_for_the_word(job: Json) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        waits = 'until [ -e /home/jobpath/go ]; do sleep 0.1; done; exec "$@"'
        container["command"] = ["sh", "-c", waits, "sh", *container["command"]]

    training.submit("--num_passes=2", change=wait_for_the_word)
    until(lambda: [pod["status"]["phase"] for pod in training.pods()] == ["Running"] * SIZE, training.pods)
    with api_server_stopped():
        (training.volume / "go").touch()
    assert not training.status()[0]
    assert training.exits() == [0, 0, 0], training.logs()
    training.until_complete()
    for pod in training.pods():
        log = training.cluster.log(pod["metadata"]["name"])
        assert "waiting for peers: the API server has not answered yet" in log
        assert "waiting for peers: the API server https://" in log  # with what went wrong, once that is known


def test_an_api_server_that_is_away_does_not_disturb_a_training(training: Training) -> None:
    training.submit("--num_passes=50", STANDIN_BATCH_SECONDS="0.2").until_training()
    before = training.passes_done()
    with api_server_stopped():
        pass
    assert training.passes_done() > before
    training.until_complete()
    assert training.passes_done() == 50
    assert training.exits() == [0, 0, 0]
