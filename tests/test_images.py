"""Images are not built on a base that changes without notice, unless the user says so."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

DOCKER = REPOSITORY / "docker"
DIGEST = "sha256:" + "0" * 64
DOCKERFILES = sorted(DOCKER.glob("*Dockerfile"))
FIXED = ["paddle:2.6.2", f"paddle@{DIGEST}", f"paddle:latest@{DIGEST}", "host:5000/team/paddle:2.6.2"]
CHANGING = ["paddle", "paddle:latest", "host:5000/team/paddle", "host:5000/team/paddle:latest"]


class Builder:
    """A stand-in for docker, which only writes down its calls."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "builder"
        self._calls = folder / "calls"
        reads = 'case "$*" in *" -f - "*) cat > /dev/null ;; esac'
        self._program.write_text(f'#!/bin/sh\necho "$*" >> {self._calls}\n{reads}\n')
        self._program.chmod(0o755)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        given = {name: value for name, value in os.environ.items() if name not in ("ALLOW_LATEST", "MAKEFLAGS")}
        environment = given | {"BUILDER": str(self._program)} | variables
        return subprocess.run(command, env=environment, cwd=REPOSITORY, text=True, capture_output=True)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


@pytest.mark.parametrize("image", FIXED)
def test_a_base_with_a_tag_or_a_digest_is_accepted(builder: Builder, image: str) -> None:
    done = builder.run(DOCKER / "check_base.sh", "BASE", image)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("image", CHANGING)
def test_a_base_that_may_be_another_one_tomorrow_is_refused(builder: Builder, image: str) -> None:
    done = builder.run(DOCKER / "check_base.sh", "BASE", image)
    assert done.returncode == 64
    assert done.stderr.startswith(f"BASE: {image} has ")
    assert "set ALLOW_LATEST=1" in done.stderr
    assert builder.run(DOCKER / "check_base.sh", "BASE", image, ALLOW_LATEST="1").returncode == 0


def test_make_image_refuses_it_before_anything_is_built(builder: Builder) -> None:
    done = builder.run("make", "image", "BASE=paddle:latest")
    assert done.returncode != 0
    assert "BASE: paddle:latest has the tag latest" in done.stderr
    assert builder.calls() == []
    builder.run("make", "image", "BASE=paddle:latest", "ALLOW_LATEST=1", "IMAGE=mine:1").check_returncode()
    assert builder.calls() == [
        "build -f docker/Dockerfile --build-arg BASE=paddle:latest --build-arg ALLOW_LATEST=1 -t mine:1 ."
    ]


def test_build_docker_refuses_it_before_anything_is_built(builder: Builder, tmp_path: Path) -> None:
    command = (DOCKER / "build_docker.sh", tmp_path, "/package", "paddle", "mine:1")
    done = builder.run(*command)
    assert done.returncode == 64
    assert "BASE: paddle has no tag" in done.stderr
    assert builder.calls() == []
    builder.run(*command, ALLOW_LATEST="1").check_returncode()
    assert "--build-arg BASE=paddle --build-arg ALLOW_LATEST=1 " in builder.calls()[0]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_checks_a_base_that_users_name_before_it_runs_anything_else(path: Path) -> None:
    text = path.read_text()
    arguments = set(re.findall(r"^FROM \$\{(\w+)\}", text, re.MULTILINE))
    for argument in arguments:
        (first, *_) = re.findall(r"^RUN (\S+ \S+ \S+)", text, re.MULTILINE)
        assert re.fullmatch(rf'/\S+/check_base\.sh {argument} "\$\{{{argument}\}}"', first)
        from_base = text.index(f"FROM ${{{argument}}}")
        assert from_base < text.index(f"\nARG {argument}\nARG ALLOW_LATEST=0\n") < text.index("\nRUN ")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_base_that_a_dockerfile_names_itself_has_a_tag_or_a_digest(builder: Builder, path: Path) -> None:
    named = re.findall(r"^(?:FROM |ARG (?:BASE|LAUNCHER)=)([^\s$]+)", path.read_text(), re.MULTILINE)
    assert named
    for image in set(named) - {"scratch", "build"}:
        builder.run(DOCKER / "check_base.sh", "BASE", image).check_returncode()
