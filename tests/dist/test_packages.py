"""What `make dist` builds: the same files from the same sources, with all that is needed and no more."""

from __future__ import annotations

import email
import hashlib
import json
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from launcher import __version__
from tests.support.paths import REPOSITORY

EPOCH = 1_767_225_600  # SOURCE_DATE_EPOCH of the Makefile: 2026-01-01
NAME = f"paddle_launcher-{__version__}"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(dist / f"{NAME}-py3-none-any.whl")


@pytest.fixture(scope="module")
def sdist(dist: Path) -> tarfile.TarFile:
    return tarfile.open(dist / f"{NAME}.tar.gz")


@pytest.fixture(scope="module")
def sbom(dist: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dist / f"{NAME}.cdx.json").read_text())
    return found


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def package_files() -> set[str]:
    """Return the files of the package, without those that Python writes."""
    found = (path for path in (REPOSITORY / "launcher").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(REPOSITORY)) for path in found}


def metadata(wheel: zipfile.ZipFile) -> Message:
    return email.message_from_bytes(wheel.read(f"{NAME}.dist-info/METADATA"))


def test_another_folder_time_and_umask_make_the_same_files(dist: Path, build: Callable[[str, int, int], Path]) -> None:
    assert digests(build("another", 1_500_000_000, 0o077)) == digests(dist)


def test_a_build_consists_of_a_wheel_a_source_distribution_an_sbom_and_their_digests(dist: Path) -> None:
    made = {f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz", f"{NAME}.cdx.json"}
    assert {path.name for path in dist.iterdir()} == made | {"SHA256SUMS"}
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1]: line.split()[0] for line in lines} == {name: digests(dist)[name] for name in made}


def test_the_wheel_has_all_files_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    of_package = {name for name in wheel.namelist() if not name.startswith(f"{NAME}.dist-info/")}
    assert of_package == package_files()
    assert {"launcher/py.typed", "launcher/store/events.schema.json"} <= of_package
    assert f"{NAME}.dist-info/licenses/LICENSE" in wheel.namelist()


def test_the_source_distribution_has_what_a_build_needs_and_no_tests(sdist: tarfile.TarFile) -> None:
    names = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    assert names == package_files() | {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


def test_no_time_user_or_permission_of_this_machine_is_in_a_package(
    wheel: zipfile.ZipFile, sdist: tarfile.TarFile
) -> None:
    assert {entry.date_time for entry in wheel.infolist()} == {(2026, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()} == {0o644}
    assert {entry.mtime for entry in sdist if not entry.name.endswith("PKG-INFO")} == {EPOCH}
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mode) for entry in sdist} == {(0, 0, "", "", 0o644)}


def test_the_metadata_name_version_licence_and_python(wheel: zipfile.ZipFile) -> None:
    given = metadata(wheel)
    assert (given["Name"], given["Version"]) == ("paddle-launcher", __version__)
    assert (given["License-Expression"], given["Requires-Python"]) == ("Apache-2.0", ">=3.10")
    assert {"ui", "visualdl"} <= set(given.get_all("Provides-Extra") or ())


def test_the_package_page_has_no_link_to_a_file_of_the_repository(tools: Path, wheel: zipfile.ZipFile) -> None:
    """The page as the index renders it, by the library with which the index does it."""
    render = "import sys; from readme_renderer import markdown; print(markdown.render(sys.stdin.read()) or '')"
    text = metadata(wheel).get_payload()
    done = subprocess.run([tools / "python", "-c", render], input=str(text), text=True, capture_output=True, check=True)
    assert "paddle-launcher" in done.stdout
    assert [link for link in re.findall(r'(?:href|src)="([^"]*)"', done.stdout) if "://" not in link] == []


def test_the_sbom_lists_each_pinned_package_with_its_hashes(sbom: dict[str, Any]) -> None:
    pinned = (REPOSITORY / "requirements" / "runtime.txt").read_text()
    listed = {f"{each['name']}=={each['version']}" for each in sbom["components"]}
    assert listed == set(re.findall(r"^[a-z0-9-]+==[^ ]+", pinned, re.MULTILINE))
    hashes = {
        hashed["content"]
        for each in sbom["components"]
        for reference in each["externalReferences"]
        for hashed in reference["hashes"]
    }
    assert hashes == set(re.findall("sha256:([0-9a-f]{64})", pinned))


def test_the_sbom_describes_this_version_and_has_no_time_and_no_random_number(sbom: dict[str, Any]) -> None:
    described = sbom["metadata"]["component"]
    assert (sbom["bomFormat"], described["name"], described["version"]) == ("CycloneDX", "paddle-launcher", __version__)
    assert "serialNumber" not in sbom
    assert "timestamp" not in sbom["metadata"]
