"""Which passes of a job are complete, and how passes are moved to another folder."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.base import files
from launcher.base.passes import named_paths, pass_folder
from launcher.errors import Exit, Failure
from launcher.model import Saves
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


def newest(folder: Path, first: int = 0, **more: Any) -> int | None:
    return checkpoints.newest(Saves(str(folder), first, **more))


def unfinished(folder: Path, first: int = 0) -> list[int]:
    """Return the passes after the newest whole one."""
    return sorted(checkpoints.survey(Saves(str(folder), first))[1])


def all_passes(folder: Path, first: int = 0, **more: Any) -> list[int]:
    return checkpoints.all_passes(Saves(str(folder), first, **more))


def flaw(folder: Path, number: int, **more: Any) -> str | None:
    return checkpoints.flaw(Saves(str(folder), **more), number)


def test_the_newest_pass_is_the_last_complete_one(tmp_path: Path) -> None:
    for number in (0, 9, 10):
        save(tmp_path, number)
    save(tmp_path, 11, done=False)
    assert newest(tmp_path) == 10


def test_passes_are_ordered_by_number_and_not_by_name(tmp_path: Path) -> None:
    save(tmp_path, 99999)
    save(tmp_path, 100000)
    assert newest(tmp_path) == 100000


def test_passes_below_the_first_pass_of_the_job_do_not_count(tmp_path: Path) -> None:
    save(tmp_path, 3)
    save(tmp_path, 4, done=False)
    save(tmp_path, 5, done=False)
    assert newest(tmp_path, 4) is None
    assert newest(tmp_path, 3) == 3
    assert unfinished(tmp_path, 5) == [5]
    assert unfinished(tmp_path, 4) == [4, 5]
    assert all_passes(tmp_path, 4) == [4, 5]


def test_a_pass_is_incomplete_until_it_is_done(tmp_path: Path) -> None:
    made = save(tmp_path, 2, done=False)
    (made / "done.tmp").touch()
    assert unfinished(tmp_path) == [2]
    assert flaw(tmp_path, 2) == checkpoints.NOT_DONE
    (made / "done").touch()
    assert unfinished(tmp_path) == []
    assert flaw(tmp_path, 2) is None
    assert all_passes(tmp_path) == [2]


def test_all_passes_are_returned_in_order_whole_or_not(tmp_path: Path) -> None:
    for number, done in ((10, True), (2, False), (0, True)):
        save(tmp_path, number, done=done)
    assert all_passes(tmp_path) == [0, 2, 10]


def test_only_passes_after_the_newest_whole_one_are_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, done in ((0, True), (1, False), (2, True), (3, False)):
        save(tmp_path, number, done=done)
    looked: list[int] = []
    examine = checkpoints.flaw

    def note(saves: Saves, number: int) -> str | None:
        looked.append(number)
        return examine(saves, number)

    monkeypatch.setattr(checkpoints, "flaw", note)
    assert checkpoints.survey(Saves(str(tmp_path))) == (2, {3: checkpoints.NOT_DONE})
    assert looked == [3, 2]


@pytest.mark.parametrize(
    "name",
    [
        *("pass-0001", "pass-00001.tmp", "pass-", "pass-0000x", "xpass-00001", "Pass-00001", "pass-000001"),
        *("pass-20261119094500", "pass-2147483648", "pass-\u0660\u0660\u0660\u0660\u0661"),
    ],
)
def test_folders_with_other_names_are_no_passes(tmp_path: Path, name: str) -> None:
    """Neither Paddle nor the protocol of the gang can count to the time stamp."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "done").touch()
    assert newest(tmp_path) is None
    assert all_passes(tmp_path) == []
    assert unfinished(tmp_path) == []


def test_a_file_with_the_name_of_a_pass_is_never_resumed_from_and_is_moved(tmp_path: Path) -> None:
    (tmp_path / "pass-00004").write_text("no folder")
    assert newest(tmp_path) is None
    assert unfinished(tmp_path) == [4]
    checkpoints.set_aside(str(tmp_path), [4], str(tmp_path / "aside"))
    assert (tmp_path / "aside" / "pass-00004").read_text() == "no folder"


def test_a_folder_that_does_not_exist_has_no_passes(tmp_path: Path) -> None:
    assert checkpoints.survey(Saves(str(tmp_path / "nowhere"))) == (None, {})
    assert all_passes(tmp_path / "nowhere") == []


def test_an_unreadable_folder_is_reported_and_does_not_count_as_empty(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("no folder")
    for look in (checkpoints.survey, checkpoints.newest, checkpoints.all_passes):
        with pytest.raises(Failure, match=f"cannot read {tmp_path}/output") as caught:
            look(Saves(str(tmp_path / "output")))
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
    for look in (checkpoints.newest, checkpoints.survey):
        with pytest.raises(Failure, match=f"cannot read {made}") as caught:
            look(Saves(str(tmp_path)))
        assert caught.value.code == Exit.IO_FAILED
    assert all_passes(tmp_path) == [4]


# ---- passes that the command line names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        "--init_model_path={}/pass-00002",
        "--init_model_path={}/pass-00002/",
        "{}/pass-00002/trainer_config.py",
        "--config_args=model={}/pass-00002,rate=1",
        "--init_model_path=../output/../output/pass-00002",
        "{}/../best/model",
    ],
)
def test_a_pass_that_the_command_line_names_is_no_pass_of_the_job(tmp_path: Path, word: str) -> None:
    output, workdir = tmp_path / "output", tmp_path / "work"
    for number in (1, 2):
        save(output, number)
    (tmp_path / "best").symlink_to(output / "pass-00002")
    workdir.mkdir()
    named = named_paths(["--num_passes", "2", word.format(output)], str(workdir))
    assert all_passes(output, named=named) == [1]
    assert newest(output, named=named) == 1


def test_the_folder_of_all_passes_on_the_command_line_names_none_of_them(tmp_path: Path) -> None:
    for number in (1, 2):
        save(tmp_path, number)
    named = named_paths([f"--save_dir={tmp_path}", "pass-00003", "pass-00002x", "-pass-00001"], str(tmp_path))
    assert all_passes(tmp_path, named=named) == [1, 2]


# ---- passes that are moved -------------------------------------------------------------------------------------------


def test_the_given_passes_are_moved_with_all_their_files_and_other_passes_stay(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path, number, content=f"of {number}")
    checkpoints.set_aside(str(tmp_path), [0, 2], str(tmp_path / "aside" / "deeper"))
    assert all_passes(tmp_path) == [1]
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
    def read_only(source: str, target: str, **_: object) -> None:
        raise OSError(30, "Read-only file system")

    made = save(tmp_path, 1)
    monkeypatch.setattr("launcher.store.checkpoints.os.rename", read_only)
    with pytest.raises(Failure, match=f"cannot write {made}: Read-only") as caught:
        checkpoints.set_aside(str(tmp_path), [1], str(tmp_path / "aside"))
    assert caught.value.code == Exit.CANNOT_WRITE
    assert (made / "done").exists()


# ---- damaged passes --------------------------------------------------------------------------------------------------


def parameter(values: int, of: int) -> bytes:
    """Return a parameter file of Paddle v0 with this number of its values."""
    return struct.pack("<iIQ", 0, 4, of) + bytes(4 * values)


W1_EMPTY, W1_SHORT = "its file w1 is empty", "its file w1 has only 24 of 28 bytes"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"w0": parameter(3, 3), "path.txt": b"config.py"}, None),
        ({"w0": parameter(3, 3), "sparse": parameter(9, 3)}, None),  # with the rows and columns of its values
        ({"w0": parameter(3, 3), "w1": parameter(2, 3)}, W1_SHORT),
        ({"w0": parameter(3, 3), "w1": b""}, W1_EMPTY),
        ({"w1": b"", "w2": b""}, W1_EMPTY),
        ({"model.pdparams": b"anything", "an empty one of its own": b""}, None),
        ({"model.pdparams": b"anything", "four zeros": bytes(4)}, None),
    ],
)
def test_a_pass_that_lost_its_content_in_a_power_loss_does_not_count(
    tmp_path: Path, files: dict[str, bytes], expected: str | None
) -> None:
    write_pass(tmp_path, files)
    assert flaw(tmp_path, 0) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"w0": parameter(3, 3), "w1": b""}, W1_EMPTY),
        ({"w1": b"", "path.txt": b"config.py", "config.py": b"settings()"}, W1_EMPTY),
        ({"w1": b"", "imported.cfg": b"a part of the configuration"}, W1_EMPTY),
        ({"w1": bytes(8), "path.txt": b"config.py"}, "its file w1 has only 8 of 16 bytes"),
        ({"w0": parameter(3, 3), "path.txt": b"", "config.py": b"", "lstm.conf": b""}, None),
    ],
)
def test_a_pass_of_v0_does_not_count_if_a_parameter_is_empty(
    tmp_path: Path, files: dict[str, bytes], expected: str | None
) -> None:
    """A full volume loses small parameters. The copy of the configuration is no part of the model."""
    write_pass(tmp_path, files)
    assert flaw(tmp_path, 0, of_v0=True) == expected


def write_pass(folder: Path, files: dict[str, bytes]) -> None:
    place = folder / "pass-00000"
    place.mkdir()
    for name, content in {**files, "done": b""}.items():
        (place / name).write_bytes(content)


# ---- requests that NFS repeats, and stale handles --------------------------------------------------------------------


def stale_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call whose first answer is ESTALE, as by an NFS server on which the folder was replaced."""
    stale = iter([True])

    def asked(*args: Any, **more: Any) -> Any:
        if next(stale, False):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return call(*args, **more)

    return asked


@pytest.mark.parametrize("name", ["listdir", "scandir", "stat", "rename", "fsync"])
def test_a_stale_handle_of_a_pass_ends_no_start(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        save(tmp_path, number)
    save(tmp_path, 2, done=False)
    saves = Saves(str(tmp_path))
    looks: list[Callable[[], object]] = [
        lambda: checkpoints.survey(saves),
        lambda: checkpoints.all_passes(saves),
        lambda: checkpoints.set_aside(str(tmp_path), [2], str(tmp_path / "aside")),
    ]
    for look in looks:
        with monkeypatch.context() as server:
            server.setattr(os, name, stale_once(getattr(os, name)))
            look()
    assert checkpoints.survey(saves) == (1, {})
    assert (tmp_path / "aside" / "pass-00002" / "w").exists()


def test_a_pass_whose_move_was_repeated_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer was lost. The repeated request finds nothing, but the move is made durable as all others."""
    rename = os.rename
    synced: list[str] = []
    monkeypatch.setattr(os, "rename", lambda *args, **more: (rename(*args, **more), rename(*args, **more)))
    monkeypatch.setattr(files, "sync_folder", synced.append)
    save(tmp_path, 1)
    checkpoints.set_aside(str(tmp_path), [1], str(tmp_path / "aside"))
    assert (tmp_path / "aside" / "pass-00001" / "done").exists()
    assert synced == [str(tmp_path / "aside"), str(tmp_path)]


def test_the_moves_of_many_passes_are_made_durable_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk needs milliseconds for each, and a job may have 40,000 passes."""
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    for number in range(50):
        save(tmp_path, number)
    checkpoints.set_aside(str(tmp_path), range(50), str(tmp_path / "aside"))
    assert len(list((tmp_path / "aside").glob("pass-*/done"))) == 50
    assert synced == [str(tmp_path / "aside"), str(tmp_path)]
