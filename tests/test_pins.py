"""All that is installed from elsewhere has one version: packages, what builds them, images."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from launcher import __version__
from launcher.job.spec import INJECT_IMAGE
from tests.support.paths import REPOSITORY

PINS = sorted((REPOSITORY / "requirements").glob("*.txt"))
_PIN = re.compile(r"([a-z0-9][-a-z0-9]*)==([0-9][0-9a-z.+]*)( ; [^\\]+?)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
_IMAGE = re.compile(r"(?<!your/)\bpaddle-launcher(?:-data|-inject)?:([\w.]+)")
_LABEL = re.compile(r"^ARG VERSION=(.*)$", re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    """Return the packages of a file with their versions."""
    return {match[1]: match[2] for match in _PIN.finditer(path.read_text())}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, text=True, capture_output=True, check=True)
    return [REPOSITORY / name for name in listed.stdout.split()]


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    rest = "".join(line for line in _PIN.sub("", path.read_text()).splitlines(True) if not line.startswith("#"))
    assert rest.strip() == "", "a package without a version or hashes, or the address of an index"
    assert pins(path)


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
def test_what_is_asked_for_is_pinned_with_its_version(path: Path) -> None:
    asked = re.findall(r"^([a-z0-9-]+)==(\S+)$", path.with_suffix(".in").read_text(), re.MULTILINE)
    assert asked
    assert dict(asked).items() <= pins(path).items(), "make pins"


def test_the_launcher_is_tested_with_the_packages_of_its_image() -> None:
    runtime, dev = (pins(REPOSITORY / "requirements" / f"{name}.txt") for name in ("runtime", "dev"))
    assert runtime.keys() & dev.keys()
    assert all(dev.get(name, version) == version for name, version in runtime.items()), "make pins"


def test_the_build_requirement_is_the_pinned_one() -> None:
    pinned = pins(REPOSITORY / "requirements" / "build.txt")["flit-core"]
    assert f'requires = ["flit_core=={pinned}"]' in (REPOSITORY / "pyproject.toml").read_text()


def test_images_install_only_files_with_known_hashes() -> None:
    for path in tracked("docker/*Dockerfile"):
        if (
            path.name == "paddle-gpu.Dockerfile"
        ):  # Paddle's wheels for GPUs are not on PyPI: their hashes are not known here
            continue
        for line in re.findall(r"\bpip (?:install|wheel|download) .*", path.read_text()):
            local = "--no-deps" in line and re.search("--no-(index|build-isolation)", line)
            assert "--require-hashes" in line or local, line


def test_all_images_have_the_version_of_the_launcher() -> None:
    assert f"paddle-launcher-inject:{__version__}" == INJECT_IMAGE
    for path in tracked("k8s", "examples", "docker", "docs", "README.md", "Makefile", "tests/e2e/*Dockerfile"):
        text = path.read_text(errors="replace")  # pictures, too
        found = _IMAGE.findall(text) + _LABEL.findall(text)
        assert set(found) <= {__version__}, path


def test_no_manifest_names_an_image_that_may_change() -> None:
    images = [line for path in tracked("k8s/*.yaml") for line in re.findall(r"\bimage: (\S+)", path.read_text())]
    assert images
    assert all(re.fullmatch(r"[\w/.-]+:[\w.-]+", image) and not image.endswith(":latest") for image in images)
