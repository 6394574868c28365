"""The kubectl commands of docs/eks.md, as written there: an API server validates all that they would apply.

Nothing is created, since only AWS has the volume. `aws` answers with names for images and for the file system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import pod_security
from tests.support.eks_page import Follower, page_blocks

AWS = """\
case "$*" in
*describe-repositories*/launcher*) echo some/launcher ;;
*describe-repositories*/data*) echo some/data ;;
*describe-file-systems*) echo fs-0123456789abcdef0 ;;
esac
"""

# The page names a kubeconfig of its own, with a cluster of its own.
KUBECTL = """\
export KUBECONFIG="$OF_THE_TEST"
case "$*" in
apply*) exec "$REAL" "$@" --dry-run=server --namespace="$NAMESPACE_OF_THE_TEST" ;;
*--dry-run=client*) exec "$REAL" "$@" ;;
esac
"""


@pytest.fixture
def follower(tmp_path: Path, cluster: Cluster) -> Follower:
    """Return a reader whose kubectl changes nothing, with a namespace that allows no privileged pods."""
    pod_security(cluster, "restricted")
    real = shutil.which("kubectl")
    assert real
    made = Follower(tmp_path, REAL=real, OF_THE_TEST=os.environ["KUBECONFIG"], NAMESPACE_OF_THE_TEST=cluster.namespace)
    made.stand_in("aws", AWS)
    made.stand_in("kubectl", KUBECTL)
    return made


def test_every_manifest_of_the_page_is_valid_to_the_api_server(follower: Follower) -> None:
    printed = [
        follower.follow(block)
        for block in page_blocks()
        if not block.unrun and "docker" not in block.commands and re.search("kubectl|kustomization", block.commands)
    ]
    applied = {line.partition(" ")[0] for each in printed for line in each.output.splitlines() if "dry run" in line}
    assert {
        "storageclass.storage.k8s.io/paddle-efs",
        "persistentvolumeclaim/paddle",
        "pod/paddle-shell",
        "job.batch/paddle-data-quick-start",
        "job.batch/quick-start-ps",
    } <= applied
    warnings = [line for each in printed for line in each.errors.splitlines() if line.startswith("Warning:")]
    assert not warnings


@pytest.mark.parametrize(("part", "image"), [("shell", "launcher"), ("ps", "launcher"), ("data", "data")])
def test_the_manifests_have_the_images_of_the_page(follower: Follower, part: str, image: str) -> None:
    for block in page_blocks():
        if "kustomization" in block.commands:
            follower.follow(block)
    folder = follower.folder / "my" / part
    rendered = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"image: (\S+)", rendered) == [f"some/{image}:1"]
