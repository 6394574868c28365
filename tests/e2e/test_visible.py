"""What a user sees of a job that trains in real pods: `list`, `why`, and the metrics of each pod."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from launcher.errors import Exit
from tests.e2e.cluster import SIZE, Cluster, kubectl, until
from tests.e2e.manifests import apply, rendered
from tests.e2e.training import Training
from tests.support.paths import K8S

READ = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics', timeout=5).read().decode())"


def launcher(training: Training, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", *words, "-n", training.cluster.namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_a_job_that_trains_is_listed_and_why_says_where_its_trainers_are(training: Training, mode: str) -> None:
    training.submit(mode=mode, hold_before=1).until_training()
    listed = json.loads(launcher(training, "list", "-o", "json").stdout)["items"]
    (item,) = [each for each in listed if each["name"] == training.name]
    assert (item["phase"], item["ready"], item["members"], item["mode"]) == ("running", SIZE, SIZE, "v0")

    said = launcher(training, "why", training.name)
    assert said.returncode == 0, said.stderr
    head, summary = said.stdout.splitlines()[:2]
    assert head.startswith(f"{training.name}: generation 0, training since ")
    assert f"{SIZE} of {SIZE} in " in summary
    assert "paddle_trainer.py:" in said.stdout
    training.let_go()
    training.until_complete()
    over = launcher(training, "why", training.name)
    assert over.returncode == Exit.NO_INPUT
    assert "does not run" in over.stderr


def test_why_needs_no_more_rights_than_those_of_a_submitter(cluster: Cluster) -> None:
    apply(cluster, *rendered(K8S / "submitter", cluster))
    account = f"--as=system:serviceaccount:{cluster.namespace}:paddle-submitter"
    for verb in ("create", "get"):
        asked = ("auth", "can-i", verb, "pods", "--subresource=exec", account)
        assert kubectl("-n", cluster.namespace, *asked).strip() == "yes"


def test_each_pod_serves_its_metrics(training: Training) -> None:
    training.submit(hold_before=1, LAUNCHER_METRICS_PORT="9464").until_training()

    def metrics(rank: int) -> str:
        pod = training.status()[rank]["pod"]
        return kubectl("-n", training.cluster.namespace, "exec", pod, "-c", "trainer", "--", "python3", "-c", READ)

    for rank in range(SIZE):
        found = metrics(rank)
        assert re.search(rf'paddle_launcher_up{{paddle_job="{training.name}",.*rank="{rank}"', found), found
        until(lambda rank=rank: "paddle_launcher_last_pass" in metrics(rank), lambda rank=rank: metrics(rank))  # type: ignore[misc]
    assert re.search(rf"paddle_launcher_members_connected{{.*}} {SIZE}\n", metrics(0))
    training.let_go()
    training.until_complete()
