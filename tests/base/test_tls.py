"""The certificates of a pod: what is missing or wrong is named with its file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.base import tls
from launcher.errors import Exit, Failure
from tests.support.certificates import CertificateAuthority


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "authority")


def test_valid_files_are_loaded(tmp_path: Path, authority: CertificateAuthority) -> None:
    contexts = tls.load(str(authority.issue(tmp_path / "pod")))
    assert contexts.server.minimum_version == contexts.client.minimum_version
    assert contexts.server.verify_mode == contexts.client.verify_mode


def encrypt_the_key(folder: Path) -> None:
    (folder / "tls.key").write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )


def take_another_key(folder: Path) -> None:
    other = CertificateAuthority(folder.with_name("another")).issue(folder.with_name("other"))
    shutil.copy(other / "tls.key", folder)


def take_another_authority(folder: Path) -> None:
    shutil.copy(CertificateAuthority(folder.with_name("another")).certificate, folder)


@pytest.mark.parametrize(
    ("spoil", "file", "why"),
    [
        (lambda folder: (folder / "tls.crt").unlink(), "tls.crt", "No such file"),
        (lambda folder: (folder / "tls.key").unlink(), "tls.key", "No such file"),
        (lambda folder: (folder / "ca.crt").unlink(), "ca.crt", "No such file"),
        (lambda folder: shutil.rmtree(folder), "tls.crt", "No such file"),
        (lambda folder: (folder / "ca.crt").write_text("no certificate"), "ca.crt", "expected certificates in PEM"),
        (lambda folder: (folder / "ca.crt").write_bytes(b""), "ca.crt", "expected certificates in PEM"),
        (lambda folder: (folder / "tls.crt").write_text("no certificate"), "tls.crt", "expected a key and its"),
        (lambda folder: (folder / "tls.key").write_text("no key"), "tls.key", "expected a key and its certificate"),
        (encrypt_the_key, "tls.key", "expected a key and its certificate"),
        (take_another_key, "tls.key", "expected a key and its certificate"),
        (take_another_authority, "tls.crt", "issued by ca.crt"),
    ],
)
def test_a_missing_or_wrong_file_is_named(
    tmp_path: Path, authority: CertificateAuthority, spoil: Callable[[Path], object], file: str, why: str
) -> None:
    folder = authority.issue(tmp_path / "pod")
    spoil(folder)
    with pytest.raises(Failure, match=f"LAUNCHER_TLS_DIR: .*{file}.*{why}") as failed:
        tls.load(str(folder))
    assert failed.value.code == Exit.CONFIG


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"days": -1}, "certificate has expired"),
        ({"usage": "serverAuth"}, "certificate purpose"),
        ({"usage": "clientAuth"}, "certificate purpose"),
    ],
)
def test_a_certificate_that_other_pods_would_refuse_is_refused_at_the_start(
    tmp_path: Path, authority: CertificateAuthority, more: dict[str, object], why: str
) -> None:
    folder = authority.issue(tmp_path / "pod", **more)  # type: ignore[arg-type]
    with pytest.raises(Failure, match=f"tls.crt: .*{why}"):
        tls.load(str(folder))


def test_the_stamps_change_with_each_file(tmp_path: Path, authority: CertificateAuthority) -> None:
    folder = authority.issue(tmp_path / "pod")
    before = tls.stamps(str(folder))
    assert tls.stamps(str(folder)) == before
    (folder / "tls.key").rename(folder / "old")
    assert tls.stamps(str(folder)) != before
    shutil.copy(folder / "old", folder / "tls.key")
    assert tls.stamps(str(folder)) != before


@pytest.mark.skipif(os.getuid() != 0, reason="needs another uid")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, authority: CertificateAuthority) -> None:
    folder = authority.issue(tmp_path / "pod")
    (folder / "tls.key").chmod(0o600)
    for part in [folder, *folder.parents][:5]:  # below the folder of temporary files
        part.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.setuid(12345)
        try:
            tls.load(str(folder))
        except Failure as failure:
            os._exit(0 if "tls.key: Permission denied" in failure.message else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
