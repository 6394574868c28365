"""A small file that always has the newest version, even if several runs write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.store.journal import LatestFile


def latest(path: Path) -> LatestFile:
    return LatestFile(Folder(str(path.parent.parent), path.parent.name), path.name)


def put(file: LatestFile, version: int) -> None:
    file.put({"version": version})
    assert file.flush(10)


def version(path: Path) -> int:
    return int(json.loads(path.read_text())["version"])


def test_a_run_does_not_write_the_file_after_a_later_run_has_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "node_0" / "status.json"
    old, new = latest(path), latest(path)
    for file, number in ((old, 1), (old, 2), (new, 3), (old, 4), (old, 5)):
        put(file, number)
    assert version(path) == 3
    assert caplog.messages == [f"this launcher stops writing {path}: another launcher has written it meanwhile"]
    put(new, 6)
    assert version(path) == 6


def test_the_journal_continues_after_a_failed_write_and_after_its_file_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "node_0" / "status.json"
    file = latest(path)
    put(file, 1)
    path.parent.rename(tmp_path / "aside")
    path.parent.write_text("in the way")
    put(file, 2)
    path.parent.unlink()
    (tmp_path / "aside").rename(path.parent)
    put(file, 3)
    assert version(path) == 3
    path.unlink()
    put(file, 4)
    assert version(path) == 4


@pytest.mark.parametrize(
    ("error", "said"), [(MemoryError(), "memory of this pod"), (KeyError("x"), "a fault of the launcher itself")]
)
def test_the_journal_continues_after_any_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    path = tmp_path / "node_0" / "status.json"
    file = latest(path)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as memory:
        memory.setattr(Folder, "write", fail)
        put(file, 1)
    assert f"cannot write {path}: " in caplog.text
    assert said in caplog.text
    put(file, 2)
    assert version(path) == 2


def test_a_write_that_took_effect_and_then_failed_counts_as_an_own_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    file = latest(path)
    put(file, 1)

    def fails_late(folder: Folder, name: str, data: bytes) -> None:
        Path(folder.path_of(name)).write_bytes(data)
        raise Failure(Exit.IO_FAILED, "the folder could not be synced")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", fails_late)
        put(file, 2)
    assert version(path) == 2
    put(file, 3)
    assert version(path) == 3
