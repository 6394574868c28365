"""Small files on the volume are written atomically, created once, and writable for the next attempt."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from launcher.base import files
from launcher.errors import Exit, Failure


def test_a_file_is_replaced_atomically_and_no_temporary_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(b"old, and longer than the new one")
    seen = path.open("rb")
    files.write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert seen.read() == b"old, and longer than the new one"
    assert os.listdir(tmp_path) == ["status.json"]


def test_a_failed_write_keeps_the_old_file_and_no_temporary_file_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", _raising(errno.ENOSPC))
    with pytest.raises(Failure) as failed:
        files.write_atomically(str(path), b"new")
    assert failed.value.code == Exit.CANNOT_WRITE
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["status.json"]


def test_the_next_attempt_may_write_under_another_uid(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.make_folder(str(tmp_path / "output" / "node_0"))
        files.write_atomically(str(tmp_path / "output" / "status"), b"x")
        files.create_once(str(tmp_path / "output" / "secret"), b"x")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "output").iterdir()}
    assert modes == {"node_0": 0o777, "status": 0o666, "secret": 0o666}
    assert (tmp_path / "output").stat().st_mode & 0o777 == 0o777


def test_an_existing_folder_is_accepted_and_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    files.make_folder(str(tmp_path))
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Failure, match=r"a file with this name exists") as failed:
            files.make_folder(str(path))
        assert failed.value.code == Exit.CANNOT_WRITE


@pytest.mark.parametrize("links", [True, False], ids=["with-links", "without-links"])
def test_all_threads_that_call_create_once_get_the_same_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _raising(errno.EPERM))
    path = str(tmp_path / "secret")
    with ThreadPoolExecutor(16) as pool:
        got = set(pool.map(lambda number: files.create_once(path, b"%d" % number * 1000), range(16)))
    assert len(got) == 1
    assert (tmp_path / "secret").read_bytes() in got
    assert os.listdir(tmp_path) == ["secret"]


def test_all_processes_that_call_create_once_get_the_same_content(tmp_path: Path) -> None:
    code = (
        "import sys, os; from launcher.base.files import create_once; "
        "print(create_once(sys.argv[1], os.urandom(9)).hex())"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "secret")]
    children = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({child.communicate()[0] for child in children}) == 1


def test_a_claim_of_a_dead_process_does_not_block_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _raising(errno.EOPNOTSUPP))
    monkeypatch.setattr(files, "_CLAIM", 0.1)
    (tmp_path / ".secret.claim").write_bytes(b"")
    assert files.create_once(str(tmp_path / "secret"), b"mine") == b"mine"
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, Exit.CANNOT_WRITE, "larger volume"),
        (errno.EDQUOT, Exit.CANNOT_WRITE, "quota"),
        (errno.EROFS, Exit.CANNOT_WRITE, "read-only"),
        (errno.EACCES, Exit.CANNOT_WRITE, "fsGroup"),
        (errno.EPERM, Exit.CANNOT_WRITE, "fsGroup"),
        (errno.EIO, Exit.IO_FAILED, "Input/output error"),
        (errno.ESTALE, Exit.IO_FAILED, "Stale file handle"),
    ],
)
def test_a_failed_write_names_path_reason_and_what_to_do(number: int, code: Exit, words: str) -> None:
    failure = files.cannot_write("/vol/job/output", OSError(number, "x"))
    assert failure.code == code
    assert "/vol/job/output" in failure.message
    assert words in failure.message


def test_a_failed_read_is_an_input_output_failure_that_names_the_file() -> None:
    failure = files.cannot_read(b"/vol/a\xff\nb", PermissionError(errno.EACCES, "x"))
    assert failure.code == Exit.IO_FAILED
    assert r"/vol/a\xff\nb" in failure.message
    assert "permission to read" in failure.message


def _raising(number: int) -> object:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail
