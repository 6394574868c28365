"""Which passes of a job are complete, and how passes are moved to another folder."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from launcher.base.passes import pass_folder
from launcher.errors import Exit, Failure
from launcher.store import checkpoints


def save(folder: Path, number: int, *, done: bool = True, content: str = "w") -> Path:
    made = folder / f"pass-{number:05d}"
    made.mkdir(parents=True)
    (made / "w").write_text(content)
    if done:
        (made / "done").touch()
    return made


def test_a_pass_has_the_folder_name_that_paddle_uses() -> None:
    assert pass_folder("/mnt/job/output", 7) == "/mnt/job/output/pass-00007"
    assert pass_folder("/mnt/job/output", 123456) == "/mnt/job/output/pass-123456"


def test_the_newest_pass_is_the_last_complete_one(tmp_path: Path) -> None:
    for number in (0, 9, 10):
        save(tmp_path, number)
    save(tmp_path, 11, done=False)
    assert checkpoints.newest(str(tmp_path)) == 10


def test_passes_are_ordered_by_number_and_not_by_name(tmp_path: Path) -> None:
    save(tmp_path, 99999)
    save(tmp_path, 100000)
    assert checkpoints.newest(str(tmp_path)) == 100000


def test_passes_below_the_first_pass_of_the_job_do_not_count(tmp_path: Path) -> None:
    save(tmp_path, 3)
    save(tmp_path, 4, done=False)
    save(tmp_path, 5, done=False)
    assert checkpoints.newest(str(tmp_path), 4) is None
    assert checkpoints.newest(str(tmp_path), 3) == 3
    assert checkpoints.incomplete(str(tmp_path), 5) == [5]
    assert checkpoints.incomplete(str(tmp_path), 4) == [4, 5]
    assert checkpoints.all_from(str(tmp_path), 4) == [4, 5]


def test_a_pass_is_incomplete_until_it_is_done(tmp_path: Path) -> None:
    made = save(tmp_path, 2, done=False)
    (made / "done.tmp").touch()
    assert checkpoints.incomplete(str(tmp_path)) == [2]
    assert not checkpoints.is_complete(str(tmp_path), 2)
    (made / "done").touch()
    assert checkpoints.incomplete(str(tmp_path)) == []
    assert checkpoints.is_complete(str(tmp_path), 2)
    assert checkpoints.all_from(str(tmp_path)) == [2]


def test_all_from_returns_complete_and_incomplete_passes_in_order(tmp_path: Path) -> None:
    for number, done in ((10, True), (2, False), (0, True)):
        save(tmp_path, number, done=done)
    assert checkpoints.all_from(str(tmp_path)) == [0, 2, 10]


@pytest.mark.parametrize(
    "name", ["pass-0001", "pass-00001.tmp", "pass-", "pass-0000x", "xpass-00001", "Pass-00001", "pass-000001"]
)
def test_folders_with_other_names_are_no_passes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "done").touch()
    assert checkpoints.newest(str(tmp_path)) is None
    assert checkpoints.all_from(str(tmp_path)) == []
    assert checkpoints.incomplete(str(tmp_path)) == []


def test_a_file_with_the_name_of_a_pass_is_never_resumed_from_and_is_moved(tmp_path: Path) -> None:
    (tmp_path / "pass-00004").write_text("no folder")
    assert checkpoints.newest(str(tmp_path)) is None
    assert checkpoints.incomplete(str(tmp_path)) == [4]
    checkpoints.set_aside(str(tmp_path), [4], str(tmp_path / "aside"))
    assert (tmp_path / "aside" / "pass-00004").read_text() == "no folder"


def test_a_folder_that_does_not_exist_has_no_passes(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert checkpoints.newest(nowhere) is None
    assert checkpoints.incomplete(nowhere) == []
    assert checkpoints.all_from(nowhere) == []


def test_an_unreadable_folder_is_reported_and_does_not_count_as_empty(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("no folder")
    for look in (checkpoints.newest, checkpoints.incomplete, checkpoints.all_from):
        with pytest.raises(Failure, match=f"cannot read {tmp_path}/output") as caught:
            look(str(tmp_path / "output"))
        assert caught.value.code == Exit.IO_FAILED


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EIO, errno.EACCES, errno.ELOOP])
def test_an_unreadable_pass_does_not_count_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    made = save(tmp_path, 4)
    stat = os.stat

    def fails(path: str, **more: Any) -> os.stat_result:
        if str(path) == str(made / "done"):
            raise OSError(error, os.strerror(error))
        return stat(path, **more)

    monkeypatch.setattr("launcher.store.checkpoints.os.stat", fails)
    for look in (checkpoints.newest, checkpoints.incomplete):
        with pytest.raises(Failure, match=f"cannot read {made}") as caught:
            look(str(tmp_path))
        assert caught.value.code == Exit.IO_FAILED
    assert checkpoints.all_from(str(tmp_path)) == [4]


def test_the_given_passes_are_moved_with_all_their_files_and_other_passes_stay(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path, number, content=f"of {number}")
    checkpoints.set_aside(str(tmp_path), [0, 2], str(tmp_path / "aside" / "deeper"))
    assert checkpoints.all_from(str(tmp_path)) == [1]
    for number in (0, 2):
        moved = tmp_path / "aside" / "deeper" / f"pass-{number:05d}"
        assert (moved / "w").read_text() == f"of {number}"
        assert (moved / "done").exists()


def test_passes_that_were_moved_earlier_are_never_overwritten(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path, 5, content=f"try {number}")
        checkpoints.set_aside(str(tmp_path), [5], str(tmp_path / "aside"))
    kept = sorted((tmp_path / "aside").iterdir())
    assert [path.name for path in kept] == ["pass-00005", "pass-00005.2", "pass-00005.3"]
    assert [(path / "w").read_text() for path in kept] == ["try 0", "try 1", "try 2"]


def test_a_dangling_link_is_never_overwritten(tmp_path: Path) -> None:
    save(tmp_path, 5)
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "pass-00005").symlink_to(tmp_path / "gone")
    checkpoints.set_aside(str(tmp_path), [5], str(tmp_path / "aside"))
    assert (tmp_path / "aside" / "pass-00005").is_symlink()
    assert (tmp_path / "aside" / "pass-00005.2" / "w").exists()


def test_other_passes_are_moved_although_one_pass_no_longer_exists(tmp_path: Path) -> None:
    save(tmp_path, 2)
    checkpoints.set_aside(str(tmp_path), [1, 2, 3], str(tmp_path / "aside"))
    assert [path.name for path in (tmp_path / "aside").iterdir()] == ["pass-00002"]


def test_no_folder_is_created_if_there_is_no_pass_to_move(tmp_path: Path) -> None:
    checkpoints.set_aside(str(tmp_path), [], str(tmp_path / "aside"))
    assert not (tmp_path / "aside").exists()


def test_a_move_that_fails_is_reported_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(source: str, target: str) -> None:
        raise OSError(30, "Read-only file system")

    made = save(tmp_path, 1)
    monkeypatch.setattr("launcher.store.checkpoints.os.rename", read_only)
    with pytest.raises(Failure, match=f"cannot write {made}: Read-only") as caught:
        checkpoints.set_aside(str(tmp_path), [1], str(tmp_path / "aside"))
    assert caught.value.code == Exit.CANNOT_WRITE
    assert (made / "done").exists()


def parameter(values: int, of: int) -> bytes:
    """Return a parameter file of Paddle v0 with this number of its values."""
    return struct.pack("<iIQ", 0, 4, of) + bytes(4 * values)


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        ({}, True),
        ({"w0": parameter(3, 3), "path.txt": b"config.py"}, True),
        ({"w0": parameter(3, 3), "w1": parameter(2, 3)}, False),
        ({"w0": parameter(3, 3), "w1": b""}, False),
        ({"w0": b"", "w1": b""}, False),
        ({"model.pdparams": b"anything", "an empty one of its own": b""}, True),
    ],
)
def test_a_pass_that_lost_its_content_in_a_power_loss_does_not_count(
    tmp_path: Path, files: dict[str, bytes], whole: bool
) -> None:
    place = tmp_path / "pass-00000"
    place.mkdir()
    for name, content in {**files, "done": b""}.items():
        (place / name).write_bytes(content)
    assert checkpoints.is_complete(str(tmp_path), 0) is whole
