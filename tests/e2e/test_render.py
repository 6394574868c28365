"""The API server accepts all objects that `render` makes, and the examples of the operator run.

Real Paddle comes from this host, as for tests/e2e/test_paddle.py: E2E_PADDLE_2 and E2E_PADDLE_3.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from launcher.job.from_yaml import RenderOptions
from launcher.job.image_commands import ImageCommands
from tests.e2e.cluster import Cluster, Json, kubectl
from tests.e2e.manifests import apply, packages_of, pod_security
from tests.support.rendering import EXAMPLES, SERVERS_AND_TRAINERS, example, jobs, of_kind, pod_spec, render_text
from tests.wheels.outcome import PROGRAMS

WAYS = ["injected", "in the image"]


def options(way: str, *entrypoint: str) -> RenderOptions:
    return RenderOptions(os.environ["E2E_INJECT_IMAGE"] if way == WAYS[0] else None, ImageCommands(entrypoint))


def text_of(cluster: Cluster, name: str) -> str:
    """Return a file of tests/paddlejobs, with the names of this cluster."""
    text = example(name).replace("an/image:1", cluster.image)
    return text.replace("namespace: training", f"namespace: {cluster.namespace}")


def complete(cluster: Cluster, objects: list[Json]) -> str:
    """Apply the objects, wait for all Jobs, and return the output of the workers."""
    apply(cluster, *objects)
    for name in jobs(objects):
        cluster.until_complete(name)
    (worker,) = (name for name in jobs(objects) if name.endswith("-worker"))
    return cluster.logs(f"job-name={worker}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_object_is_valid_to_the_api_server(cluster: Cluster, name: str, way: str) -> None:
    objects = render_text(text_of(cluster, name), options(way, "python3", "train.py"))
    known = [made for made in objects if made["kind"] != "PodGroup"]
    listed: Json = {"kind": "List", "apiVersion": "v1", "items": known}
    kubectl("-n", cluster.namespace, "apply", "--dry-run=server", "-f", "-", given=listed)


@pytest.mark.parametrize("way", WAYS)
def test_the_image_of_the_first_example_runs_its_own_program(cluster: Cluster, way: str) -> None:
    objects = render_text(text_of(cluster, "wide-and-deep.yaml"), options(way, "python3", "-c", SERVERS_AND_TRAINERS))
    said = complete(cluster, objects)
    for number in range(2):
        assert f"trainer {number} reached 2" in said


@pytest.mark.parametrize("way", WAYS)
def test_the_fifth_example_runs_the_program_that_is_on_its_volume(cluster: Cluster, claim: Path, way: str) -> None:
    pod_security(cluster, "privileged")  # the example sets no user, and the user of the image is root
    (claim / "wide_and_deep").mkdir()
    (claim / "wide_and_deep" / "train.py").write_text(SERVERS_AND_TRAINERS)
    text = text_of(cluster, "volume.yaml").replace("nfs-pvc", "paddle")
    said = complete(cluster, render_text(text, options(way)))
    for number in range(2):
        assert f"trainer {number} reached 2" in said


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["the pod", "its container"])
def test_a_restricted_namespace_accepts_the_pods_of_a_user_who_is_not_root(
    cluster: Cluster, way: str, place: str
) -> None:
    pod_security(cluster, "restricted")
    (job,) = yaml.safe_load_all(text_of(cluster, "wide-and-deep.yaml"))
    for role in ("ps", "worker"):
        pod = job["spec"][role]["template"]["spec"]
        (pod if place == "the pod" else pod["containers"][0])["securityContext"] = {"runAsUser": 10001}
    made = render_text(yaml.safe_dump(job), options(way, "python3", "-c", SERVERS_AND_TRAINERS))
    assert "trainer 1 reached 2" in complete(cluster, made)


def test_workers_read_the_claim_of_a_sample_set(cluster: Cluster, claim: Path) -> None:
    pod_security(cluster, "privileged")  # as above
    (claim / "words").write_text("the words of the sample set")
    text = text_of(cluster, "sample-set.yaml").replace("name: pictures", "name: paddle")
    (job,) = yaml.safe_load_all(text)
    (container,) = job["spec"]["worker"]["template"]["spec"]["containers"]
    container |= {"command": ["sh", "-c"], "args": ["cat /mnt/pictures/words && touch /mnt/pictures/written"]}
    said = complete(cluster, render_text(yaml.safe_dump(job), options(WAYS[0])))
    assert "the words of the sample set" in said
    assert (claim / "written").exists()


@pytest.mark.usefixtures("volcano")
def test_the_fourth_example_is_scheduled_by_volcano(cluster: Cluster) -> None:
    objects = render_text(text_of(cluster, "volcano.yaml"), options(WAYS[1], "python3", "-c", SERVERS_AND_TRAINERS))
    apply(cluster, *of_kind(objects, "PodGroup"))
    assert "trainer 1 reached 2" in complete(cluster, objects)


@pytest.mark.parametrize("name", ["wide-and-deep.yaml", "gpu-nodes.yaml"])
def test_examples_with_servers_train_with_paddle(cluster: Cluster, name: str) -> None:
    program = (PROGRAMS / "server_and_trainer.py").read_text()
    said = complete(cluster, with_paddle(cluster, name, "E2E_PADDLE_2", "python3", "-c", program))
    for number in range(2):
        assert f"trained {number} of 2" in said


def test_the_second_example_trains_below_paddles_own_launcher(cluster: Cluster) -> None:
    program = (PROGRAMS / "sum_of_ranks.py").read_text()
    write = f"printf %s {shlex.quote(program)} > /tmp/train_fleet.py && cd /tmp"
    words = ("bash", "-c", f"{write} && exec python3 -m paddle.distributed.launch train_fleet.py")
    said = complete(cluster, with_paddle(cluster, "resnet.yaml", "E2E_PADDLE_3", *words))
    for rank in range(2):
        assert f"rank {rank} of 2: the sum is 3" in said


def with_paddle(cluster: Cluster, name: str, variable: str, *command: str) -> list[Json]:
    """Return an example whose containers run this command with Paddle's packages, on nodes without GPUs."""
    packages = packages_of(variable)
    (job,) = yaml.safe_load_all(text_of(cluster, name))
    for role in ("ps", "worker"):
        if role not in job["spec"]:
            continue
        pod = job["spec"][role]["template"]["spec"]
        pod.pop("nodeSelector", None)
        pod.setdefault("volumes", []).append({"name": "packages", "hostPath": {"path": str(packages)}})
        (container,) = pod["containers"]
        container.pop("resources", None)
        container.pop("args", None)
        mount = {"name": "packages", "mountPath": "/packages", "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        container["command"] = ["env", "PYTHONPATH=/packages", *command]
    return render_text(yaml.safe_dump(job), options(WAYS[0]))


def test_a_second_render_does_not_change_a_running_job_and_says_why(cluster: Cluster) -> None:
    text, waits = text_of(cluster, "resnet.yaml"), options(WAYS[1])
    for theirs, here in (
        ("nvidia.com/gpu: 1", "memory: 1Gi"),
        ("paddle.distributed.launch", "http.server"),
        ("train_fleet.py", "8099"),
    ):
        text = text.replace(theirs, here)
    first, second = (render_text(text, waits) for _ in range(2))
    apply(cluster, *first)
    before = cluster.uid("job", "resnet-worker")
    again = subprocess.run(
        ["kubectl", "-n", cluster.namespace, "apply", "-f", "-"],
        input=yaml.safe_dump_all(second),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode
    assert "field is immutable" in again.stderr
    assert cluster.uid("job", "resnet-worker") == before
    (used,) = (each for each in pod_spec(jobs(first)["resnet-worker"])["volumes"] if "secret" in each)
    kubectl("-n", cluster.namespace, "get", "secret", used["secret"]["secretName"])
