"""The launcher is injected into images without it, with its own Python and libc (docker/inject.Dockerfile)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Json, until
from tests.e2e.manifests import apply, overlay, passes, rendered


def injected(cluster: Cluster, folder: Path, name: str, image: str) -> list[Json]:
    """Return one of our jobs with the option, and with this image."""
    objects = rendered(overlay(folder, name, "inject"), cluster)
    for made in objects:
        if "template" in made.get("spec", {}):
            spec = made["spec"]["template"]["spec"]
            spec["containers"][0]["image"] = image
            spec["initContainers"][0]["image"] = os.environ["E2E_INJECT_IMAGE"]
    return objects


def lines_counted(job: Path) -> set[str]:
    """Return what the program of the bare image saves in each pass: the number of lines of all shards."""
    return {path.read_text() for path in (job / "output").glob("pass-*/lines")}


@pytest.mark.parametrize(("name", "job"), [("job", "paddle-cluster-job"), ("job-indexed", "paddle-indexed-job")])
def test_the_launcher_runs_without_python_without_a_shell_and_with_another_libc(
    cluster: Cluster, claim: Path, tmp_path: Path, name: str, job: str
) -> None:
    (claim / "quick-start").rename(claim / job)
    apply(cluster, *injected(cluster, tmp_path, name, os.environ["E2E_BARE_IMAGE"]))
    cluster.until_complete(job)
    assert passes(claim / job) == 10
    assert lines_counted(claim / job) == {"300\n"}


@pytest.mark.skipif("E2E_OLD_IMAGE" not in os.environ, reason="E2E_OLD_IMAGE names no image with an older libc")
def test_the_launcher_runs_with_an_older_libc_and_python_and_ignores_their_variables(
    cluster: Cluster, claim: Path, tmp_path: Path
) -> None:
    job = claim / "paddle-set"
    (claim / "quick-start").rename(job)
    apply(cluster, *injected(cluster, tmp_path, "statefulset", os.environ["E2E_OLD_IMAGE"]))
    label = "app.kubernetes.io/instance=paddle-set"
    until(lambda: ready_after_training(cluster, job, label), lambda: cluster.logs(label))
    restarts = {pod["status"]["containerStatuses"][0]["restartCount"] for pod in cluster.pods(label)}
    assert restarts == {0}


def ready_after_training(cluster: Cluster, job: Path, label: str) -> bool:
    """Return whether ten passes are saved, and the probes, which also run the injected launcher, succeed."""
    states = [pod["status"].get("containerStatuses", [{}])[0] for pod in cluster.pods(label)]
    return passes(job) == 10 and [state.get("ready") for state in states] == [True] * 3


@pytest.mark.parametrize("name", ["job", "job-indexed", "statefulset"])
def test_no_probe_searches_the_path_for_the_launcher(cluster: Cluster, tmp_path: Path, name: str) -> None:
    objects = injected(cluster, tmp_path, name, "any/paddle:image")
    (template,) = (made["spec"]["template"] for made in objects if "template" in made.get("spec", {}))
    container = template["spec"]["containers"][0]
    commands = [given["exec"]["command"] for key, given in container.items() if key.endswith("Probe")]
    assert commands
    assert {command[0] for command in [*commands, container["command"]]} == {"/launcher/paddle-launcher"}
