"""docs/kubernetes.md without a cluster: which blocks tests run, and that each is complete. tests/e2e runs them."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatchcase

import pytest
import yaml

from launcher.base import file_errors
from tests.support.kubernetes_page import CAN_WRITE, PAGE, TODAY, V0, VOLCANO, sections
from tests.support.pages import Block, blocks, shows
from tests.support.paths import K8S, REPOSITORY


def lines(block: Block) -> str:
    return f"line {block.line}"


def test_every_block_is_run_by_a_test_or_the_page_says_why_not() -> None:
    run = {*TODAY, *V0, VOLCANO}
    assert run <= sections().keys()
    assert not {name for name in sections().keys() - run for block in sections()[name] if not block.unrun}
    assert not {name for name in run for block in sections()[name] if block.unrun}


@pytest.mark.parametrize("block", blocks(PAGE.read_text()), ids=lines)
def test_every_block_is_a_complete_script(block: Block) -> None:
    subprocess.run(["bash", "-n", "-c", block.commands], check=True)
    assert "#" not in block.commands, "zsh takes a pasted comment for a command"


def test_only_the_part_for_paddle_v0_is_about_it() -> None:
    """Except for the first lines, which lead there."""
    _, _, text = PAGE.read_text().partition("You need:")
    today, _, _ = text.partition("\n## Train with Paddle v0\n")
    assert today != text
    assert "v0" not in today
    assert "pserver" not in today


def test_the_images_of_paddle_have_their_packages_in_the_repository() -> None:
    """And .dockerignore, in which the last line that fits a path counts, leaves them in the context."""
    dockerfile = (REPOSITORY / "docker" / "paddle.Dockerfile").read_text()
    pages = (PAGE, PAGE.with_name("eks.md"))
    versions = {found for page in pages for found in re.findall(r"\bPADDLE=(\d\S+)", page.read_text())}
    (default,) = re.findall(r"^ARG PADDLE=(\S+)$", dockerfile, re.MULTILINE)
    (copied,) = re.findall(r"^COPY (requirements/\S+)", dockerfile, re.MULTILINE)
    assert versions == {default, "2.6.2"}
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    for version in versions:
        path = copied.replace("${PADDLE}", version)
        assert (REPOSITORY / path).exists()
        *_, last = (line for line in ignored if fnmatchcase(path, line.removeprefix("!")))
        assert last.startswith("!")


def test_the_message_of_a_refused_write_names_a_heading_of_the_page() -> None:
    assert CAN_WRITE in sections()
    assert CAN_WRITE in file_errors.cannot_write("/volume/output", PermissionError(13, "x")).message


def test_the_manifest_of_cephfs_names_the_secret_of_its_comment_and_of_the_page() -> None:
    text = (K8S / "volumes" / "cephfs" / "volume.yaml").read_text()
    (created,) = re.findall(r"kubectl create secret generic (\S+) --namespace=(\S+) ", text)
    disk, _ = yaml.safe_load_all(text)
    wanted = disk["spec"]["csi"]["nodeStageSecretRef"]
    assert created == (wanted["name"], wanted["namespace"])
    assert f"kubectl create secret generic {wanted['name']} --namespace=$NAMESPACE " in PAGE.read_text()
    assert f"export NAMESPACE={wanted['namespace']} " in PAGE.read_text()


def test_only_names_times_and_widths_may_differ_from_the_shown_output() -> None:
    shown = "...\nrank  pod       since\n0     a-qbbg2   2026-11-18T17:04:30Z  cause: ...\n"
    assert shows(shown, "before\nrank pod since\n0  a-zzzzz  2027-01-01T00:00:00Z  cause: no shard\n")
    assert not shows(shown, "before\nrank pod since\n0  a-zzzzz  2027-01-01T00:00:00Z\n")
    assert not shows(shown, "rank pod since\n0  a-zzzzz  2027-01-01T00:00:00Z  cause: no shard\n1  b\n")
