"""Small files on the volume are written atomically and created once, even if NFS repeats requests."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from launcher.base import files
from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from tests.support.supervising import needs_root, small_volume


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


def test_an_existing_folder_is_accepted_and_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    files.make_folder(str(tmp_path))
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Failure, match="remove or rename the file") as failed:
            files.make_folder(str(path))
        assert failed.value.code == Exit.CANNOT_WRITE


@pytest.mark.parametrize("links", [True, False], ids=["with-links", "without-links"])
def test_all_threads_that_call_create_once_get_the_same_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _raising(errno.EPERM))
    folder = Folder(str(tmp_path))
    with ThreadPoolExecutor(16) as pool:
        got = set(pool.map(lambda number: folder.create("secret", b"%d" % number * 1000), range(16)))
    assert len(got) == 1
    assert (tmp_path / "secret").read_bytes() in got
    assert os.listdir(tmp_path) == ["secret"]


def test_all_processes_that_call_create_once_get_the_same_content(tmp_path: Path) -> None:
    code = (
        "import sys, os; from launcher.base.files import Folder; "
        "print(Folder(sys.argv[1]).create('secret', os.urandom(9)).hex())"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    children = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({child.communicate()[0] for child in children}) == 1


def test_a_claim_of_a_dead_process_does_not_block_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _raising(errno.EOPNOTSUPP))
    monkeypatch.setattr(files, "_CLAIM", 0.1)
    (tmp_path / ".secret.claim").write_bytes(b"")
    assert Folder(str(tmp_path)).create("secret", b"mine") == b"mine"
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize("links", [True, False], ids=["with-links", "without-links"])
def test_requests_that_nfs_repeats_change_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """The first answer of each request is lost. The answer to the repeated request is ENOENT or EEXIST."""
    for name in ("link", "replace", "rename", "unlink", "mkdir"):
        monkeypatch.setattr(os, name, _repeated(getattr(os, name)))
    if not links:
        monkeypatch.setattr(os, "link", _raising(errno.EPERM))
    folder = Folder(str(tmp_path), ".launcher", "job-1")
    folder.write("status.json", b"1")
    folder.write("status.json", b"2")
    assert folder.read("status.json") == b"2"
    assert folder.create("secret", b"mine") == b"mine"
    assert folder.create("secret", b"of another pod") == b"mine"
    folder.mark("complete", b"all\n")
    folder.remove("complete")
    assert not folder.exists("complete")
    assert sorted(folder.names()) == ["secret", "status.json"]


def test_a_folder_that_is_removed_during_a_write_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(str(tmp_path), ".launcher")
    replace = os.replace

    def once(*args: Any, **more: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        shutil.rmtree(tmp_path / ".launcher")
        replace(*args, **more)

    monkeypatch.setattr(os, "replace", once)
    folder.write("status.json", b"1")
    assert folder.read("status.json") == b"1"


@pytest.mark.parametrize("call", ["open", "replace", "link", "unlink", "listdir", "fsync"])
def test_a_stale_handle_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    folder = Folder(str(tmp_path), ".launcher")
    folder.make()
    real = getattr(os, call)
    failures: list[str] = []

    def stale_once(*args: Any, **more: Any) -> Any:
        if not failures:
            failures.append(call)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(*args, **more)

    monkeypatch.setattr(os, call, stale_once)
    folder.write("status.json", b"1")
    assert folder.create("secret", b"mine") == b"mine"
    folder.remove("status.json")
    assert [name for name in folder.names() if not name.endswith(".tmp")] == ["secret"]
    assert folder.read("secret") == b"mine"
    assert failures == [call]


@needs_root
def test_a_mark_can_be_made_on_a_full_volume(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", "1m") as volume:
        folder = Folder(str(volume), ".launcher")
        folder.make()
        with suppress(OSError), (volume / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(Failure, match="space"):
            folder.write("status.json", b"1")
        folder.mark("complete", b"all members have trained\n")
        assert folder.exists("complete")
        assert folder.names() == ["complete"]


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\0b"])
def test_a_name_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Failure, match="cannot be the name of a folder"):
        Folder(str(tmp_path), ".launcher", name)


def test_what_another_user_may_have_put_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".launcher").symlink_to("/tmp")
    folder = Folder(str(tmp_path), ".launcher", "job-1")
    calls: dict[Exit, Callable[[], object]] = {
        Exit.CANNOT_WRITE: folder.make,
        Exit.IO_FAILED: lambda: folder.read("secret"),
    }
    for code, call in calls.items():
        with pytest.raises(Failure) as failed:
            call()
        assert failed.value.code == code
        assert failed.value.message.startswith(f"{tmp_path}/.launcher is a symbolic link, not a folder: ")
        assert failed.value.message.endswith("remove it")


def _repeated(call: Callable[..., Any]) -> Callable[..., Any]:
    def twice(*args: Any, **more: Any) -> Any:
        call(*args, **more)
        return call(*args, **more)

    return twice


def _raising(number: int) -> object:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail
