"""docs/kubernetes.md as a reader follows it: each command runs as written, and its output is compared with the page.

Three things stand in for what the reader has. `docker` is a script, since a test has no registry to push to; so after
the first block, which names images and namespace, both are those of this test. $EDITOR writes a folder of this host
into the volume's manifest. The reader's own data set is that of the stand-in for Paddle.
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

from tests.e2e.cluster import kubectl
from tests.e2e.manifests import claimed
from tests.support.pages import Block, blocks, shows
from tests.support.paths import MAKE_DATA, REPOSITORY

PAGE = REPOSITORY / "docs" / "kubernetes.md"
BLOCK_SECONDS = 400

DOCKER = """\
#!/bin/sh
# docker info | push IMAGE | build -f FILE ...
echo "$@" >> "$DOCKER_CALLS"
[ "$1" != build ] || [ -f "$3" ]
"""


class Reader:
    """Runs the blocks of the page in one folder and one environment."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._environment = folder.parent / "environment"
        self._given = os.environ | environment
        self._environment.touch()

    def follow(self, block: Block) -> None:
        """Run the commands, and compare their output."""
        where = f"{PAGE.name}, line {block.line}"
        done = self.bash(block.commands)
        told = f"{block.commands}\n--- it printed\n{done.stdout}\n--- and on standard error\n{done.stderr}"
        assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{told}"
        if block.shown:
            assert shows(block.shown, done.stdout), f"{where}: the page shows\n{block.shown}\n--- of\n{told}"

    def bash(self, commands: str) -> subprocess.CompletedProcess[str]:
        keep = f"source '{self._environment}'\n{commands}\nexport -p > '{self._environment}'"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", keep],
            cwd=self.folder,
            env=self._given,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS,
        )


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
    folder, tools, volume = tmp_path / "reader", tmp_path / "tools", tmp_path / "volume"
    for made in (folder, tools, volume):
        made.mkdir()
    for name in ("docker", "k8s"):
        shutil.copytree(REPOSITORY / name, folder / "paddle-launcher" / name)
    shutil.copy(REPOSITORY / "Makefile", folder / "paddle-launcher")
    subprocess.run([sys.executable, MAKE_DATA, folder / "reviews", "--examples=300", "--seed=1"], check=True)
    (tools / "docker").write_text(DOCKER)
    (tools / "docker").chmod(0o755)
    (tools / "volume.yaml").write_text(yaml.safe_dump_all(claimed(volume, namespace)))
    (tools / "kubeconfig").write_text(kubectl("config", "view", "--raw", "--flatten"))
    volume.chmod(0o777)
    return Reader(
        folder,
        PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
        KUBECONFIG=str(tools / "kubeconfig"),
        DOCKER_CALLS=str(tools / "calls"),
        EDITOR=f"cp {tools / 'volume.yaml'}",
    )


def names(namespace: str) -> str:
    """Return the settings of the first block of the page, for this test."""
    image, _, tag = os.environ["E2E_IMAGE"].rpartition(":")
    data_image, _, data_tag = os.environ["E2E_DATA_IMAGE"].rpartition(":")
    assert tag == data_tag, "the page gives both images one tag: E2E_IMAGE and E2E_DATA_IMAGE must have that too"
    return f"export NAMESPACE={namespace} IMAGE={image} DATA_IMAGE={data_image} TAG={tag}"


@pytest.mark.timeout(900)
def test_every_command_of_the_page_runs_as_written_and_prints_what_is_shown(
    tmp_path: Path, namespace: str, reader: Reader
) -> None:
    image, *others = blocks(PAGE.read_text())
    reader.follow(image)
    calls = (tmp_path / "tools" / "calls").read_text()
    assert "build -f docker/Dockerfile --build-arg BASE=your/paddle:tag -t your/paddle-launcher:1 ." in calls
    assert "push your/paddle-data:1" in calls
    reader.bash(names(namespace)).check_returncode()
    for block in others:
        reader.follow(block)
    assert (reader.folder / "my" / "model" / "done").exists()
    assert not kubectl("get", "namespace,pv", f"--field-selector=metadata.name={namespace}", "-o", "name")


def test_only_names_times_and_widths_may_differ_from_the_shown_output() -> None:
    shown = "...\nrank  pod       since\n0     a-qbbg2   2026-11-18T17:04:30Z  cause: ...\n"
    assert shows(shown, "before\nrank pod since\n0  a-zzzzz  2027-01-01T00:00:00Z  cause: no shard\n")
    assert not shows(shown, "before\nrank pod since\n0  a-zzzzz  2027-01-01T00:00:00Z\n")
    assert not shows(shown, "rank pod since\n0  a-zzzzz  2027-01-01T00:00:00Z  cause: no shard\n1  b\n")


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, and of its other lines."""
    return {
        re.sub(r"[^a-z0-9_ -]", "", line.lower()).strip().replace(" ", "-") for line in page.read_text().splitlines()
    }


def test_all_links_of_the_page_have_a_target() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE.read_text())
    assert links
    for link in links:
        name, _, anchor = link.partition("#")
        page = PAGE.parent / name if name else PAGE
        assert page.exists(), link
        assert not anchor or anchor in anchors(page), link
