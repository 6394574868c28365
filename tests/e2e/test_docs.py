"""docs/kubernetes.md as a reader follows it: each command runs as written, and its output is compared with the page.

These things stand in for what the reader has. `docker` is a script, since a test has no registry to push to; so after
the first block, which names images and namespace, both are those of this test. Paddle 3 is the real one: pods mount it
from this host (E2E_PADDLE_3). Paddle v0 is the stand-in of the image. $EDITOR writes a folder of this host into the
volume's manifest. The reader's own data set for Paddle v0 is that of the stand-in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Json, kubectl, until
from tests.e2e.manifests import claimed, kustomized, packages_of
from tests.support.kubernetes_page import TODAY, V0, VOLCANO, names_for, sections
from tests.support.paths import MAKE_DATA, REPOSITORY
from tests.support.reader import DOCKER, Reader


@pytest.fixture
def namespace() -> Iterator[str]:
    """Yield a name for the namespace and the volume of the page. Both are removed at the end, even after a failure."""
    name = f"launcher-{uuid.uuid4().hex[:8]}"
    yield name
    for kind in ("namespace", "pv"):
        kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


@pytest.fixture
def reader(tmp_path: Path, namespace: str) -> Reader:
    """Return a reader who has a clone of this repository, a cluster, an editor, docker and a data set."""
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "volume.yaml").write_text(yaml.safe_dump_all(claimed(volume, namespace)))
    (tmp_path / "kubeconfig").write_text(kubectl("config", "view", "--raw", "--flatten"))
    made = Reader(tmp_path, KUBECONFIG=str(tmp_path / "kubeconfig"), EDITOR=f"cp {tmp_path / 'volume.yaml'}")
    made.stand_in("docker", DOCKER)
    for name in ("docker", "k8s", "examples"):
        shutil.copytree(REPOSITORY / name, made.folder / "paddle-launcher" / name)
    shutil.copy(REPOSITORY / "Makefile", made.folder / "paddle-launcher")
    subprocess.run([sys.executable, MAKE_DATA, made.folder / "reviews", "--examples=300", "--seed=1"], check=True)
    return made


def put_paddle_into_images(clone: Path, packages: Path) -> None:
    """Change the manifest of the reader's clone so that its pods have these packages, as the built image would."""
    path = clone / "k8s" / "job-indexed" / "job.yaml"
    job: Json = yaml.safe_load(path.read_text())
    pod = job["spec"]["template"]["spec"]
    pod["volumes"].append({"name": "packages", "hostPath": {"path": str(packages)}})
    (container,) = pod["containers"]
    container["volumeMounts"].append({"name": "packages", "mountPath": "/packages", "readOnly": True})
    container["env"].append({"name": "PYTHONPATH", "value": "/packages"})
    path.write_text(yaml.safe_dump(job))


def follow(reader: Reader, headings: tuple[str, ...], namespace: str) -> list[str]:
    """Run the blocks of these headings as written, and return how docker was called. Then nothing is left."""
    image, *others = [block for heading in headings for block in sections()[heading] if not block.unrun]
    reader.follow(image)
    calls = reader.calls_of("docker")
    reader.bash(names_for(namespace)).check_returncode()
    for block in others:
        reader.follow(block)
    assert (reader.folder / "my" / "model" / "done").exists()
    assert not kubectl("get", "namespace,pv", f"--field-selector=metadata.name={namespace}", "-o", "name")
    return calls


def images(reader: Reader) -> set[str]:
    """Return the images of all manifests that the reader has written."""
    written = (path.parent for path in reader.folder.glob("my/*/kustomization.yaml"))
    return {image for folder in written for image in re.findall(r"\bimage: (\S+)", kustomized(folder))}


@pytest.mark.timeout(900)
def test_every_command_for_the_paddle_of_today_runs_as_written_on_a_volume_of_root(
    tmp_path: Path, namespace: str, reader: Reader
) -> None:
    put_paddle_into_images(reader.folder / "paddle-launcher", packages_of("E2E_PADDLE_3"))
    (tmp_path / "volume").chmod(0o755)
    calls = follow(reader, TODAY, namespace)
    assert (
        "build -f paddle-launcher/docker/paddle.Dockerfile --build-arg PADDLE=3.3.1 -t paddle:3.3.1 paddle-launcher"
        in calls
    )
    assert "build -f docker/Dockerfile --build-arg BASE=paddle:3.3.1 -t your/paddle-launcher:1 ." in calls
    assert calls[-2:] == ["push your/paddle-launcher:1", "push your/paddle-data:1"]
    assert (reader.folder / "my" / "model" / "model.pdparams").stat().st_size
    assert images(reader) == {os.environ["E2E_IMAGE"], os.environ["E2E_DATA_IMAGE"]}


@pytest.mark.timeout(900)
def test_every_command_for_paddle_v0_runs_as_written(tmp_path: Path, namespace: str, reader: Reader) -> None:
    (tmp_path / "volume").chmod(0o777)
    calls = follow(reader, V0, namespace)
    assert "build -f docker/Dockerfile --build-arg BASE=your/paddle:tag -t your/paddle-launcher:1 ." in calls
    assert calls[-2:] == ["push your/paddle-launcher:1", "push your/paddle-data:1"]
    assert images(reader) == {os.environ["E2E_IMAGE"], os.environ["E2E_DATA_IMAGE"]}


def test_the_page_removes_the_webhooks_that_volcano_leaves_behind(namespace: str, reader: Reader) -> None:
    """A webhook that no server answers, for the pods of one namespace only."""
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    if "volcano-admission-service" in kubectl("get", kinds, "-o", "name"):
        pytest.skip("this cluster has a Volcano with webhooks")
    kubectl("create", "namespace", namespace)
    for kind, word in (("ValidatingWebhookConfiguration", "validate"), ("MutatingWebhookConfiguration", "mutate")):
        name = f"volcano-admission-service-pods-{word}"
        webhook = {
            "name": f"{word}pod.volcano.sh",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": namespace, "name": "volcano-admission-service"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }
        made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        kubectl("create", "-f", "-", given=made | {"webhooks": [webhook]})
    (block,) = sections()[VOLCANO]
    try:
        run = f"kubectl -n {namespace} run one --image={os.environ['E2E_IMAGE']} --dry-run=server"
        until(lambda: 'failed calling webhook "mutatepod.volcano.sh"' in reader.bash(run).stderr)
        reader.follow(block)
        assert "volcano-admission-service" not in kubectl("get", kinds, "-o", "name")
        until(lambda: reader.bash(run).returncode == 0, lambda: reader.bash(run).stderr)
    finally:
        reader.bash(block.commands)
