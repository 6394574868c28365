"""Files are opened without following links, and get the permissions of their folder."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.base import entries
from launcher.base.entries import TooLarge, WrongKind
from tests.support.supervising import needs_root
from tests.support.users import ONE, STRANGER, TEAM, TWO, User, mode, run_as, shared_folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


PLANTED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a link": (lambda path, other: path.symlink_to(other), "a symbolic link"),
    "a link to nothing": (lambda path, other: path.symlink_to("nowhere"), "a symbolic link"),
    "a FIFO": (lambda path, other: os.mkfifo(path), "a FIFO"),
    "a folder": (lambda path, other: path.mkdir(), "a folder"),
    "a socket": (lambda path, other: listening(path), "a socket"),
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND])
def test_only_files_are_opened(tmp_path: Path, folder: int, planted: str, flags: int) -> None:
    other = tmp_path / "train.sh"
    other.write_text("echo")
    make, kind = PLANTED[planted]
    make(tmp_path / "status.json", other)
    with pytest.raises(WrongKind) as raised:
        entries.open_file(folder, "status.json", "/vol/output/status.json", flags)
    assert raised.value.path == "/vol/output/status.json"
    assert raised.value.what == f"is {kind}, not a file"


@pytest.mark.parametrize("planted", [*PLANTED, "a second name"])
def test_a_log_never_changes_another_file_and_begins_anew(tmp_path: Path, folder: int, planted: str) -> None:
    other, path = tmp_path / "train.sh", tmp_path / "train.log"
    other.write_text("echo")
    other.chmod(0o600)
    if planted == "a second name":
        os.link(other, path)
    else:
        PLANTED[planted][0](path, other)
    fd, warning = entries.open_log(folder, "train.log", str(path))
    os.write(fd, b"line\n")
    os.close(fd)
    assert path.read_text() == "line\n"
    assert (other.read_text(), mode(other)) == ("echo", 0o600)
    assert warning.startswith(f"{path} is ")
    aside = next(tmp_path.glob("train.log.replaced-*"))
    assert aside.name in warning
    again, warning = entries.open_log(folder, "train.log", str(path))
    os.write(again, b"more\n")
    os.close(again)
    assert (path.read_text(), warning) == ("line\nmore\n", "")


@pytest.mark.parametrize("planted", ["a link", "a link to nothing", "a FIFO"])
def test_a_folder_of_the_launcher_is_never_a_link(tmp_path: Path, planted: str) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    PLANTED[planted][0](tmp_path / ".launcher", other)
    for make in (True, False):
        with pytest.raises(WrongKind) as raised:
            entries.open_folder(str(tmp_path), (".launcher", "job-1"), make=make)
        assert raised.value.path == str(tmp_path / ".launcher")
    assert not list(other.iterdir())


def test_the_folder_that_the_user_chose_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "output").symlink_to("disk")
    os.close(entries.open_folder(str(tmp_path / "output"), ("node_0",), make=True))
    assert (tmp_path / "disk" / "node_0").is_dir()


def test_a_file_with_more_bytes_than_the_limit_is_not_read(tmp_path: Path, folder: int) -> None:
    (tmp_path / "file").write_bytes(bytes(200_000))
    assert entries.read_file(folder, "file", "file", 200_000) == bytes(200_000)
    with pytest.raises(TooLarge):
        entries.read_file(folder, "file", "file", 199_999)


# ---- requests that NFS repeats, and stale handles --------------------------------------------------------------------


def test_a_rename_that_was_repeated_has_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_text("content")
    monkeypatch.setattr(os, "rename", twice(os.rename))
    entries.move(str(tmp_path / "old"), str(tmp_path / "new"))
    assert (tmp_path / "new").read_text() == "content"
    with pytest.raises(FileNotFoundError):
        entries.move(str(tmp_path / "missing"), str(tmp_path / "other"))


def test_a_removal_that_was_repeated_has_succeeded(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "unlink", twice(os.unlink))
    entries.remove(folder, "file")
    assert not (tmp_path / "file").exists()


def test_a_folder_whose_creation_was_repeated_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mkdir", twice(os.mkdir))
    os.close(entries.open_folder(str(tmp_path / "job" / "output"), (".launcher",), make=True))
    assert (tmp_path / "job" / "output" / ".launcher").is_dir()


def test_work_with_a_stale_handle_is_done_again_and_not_for_ever() -> None:
    calls = []

    def stale(times: int) -> int:
        calls.append(times)
        if len(calls) <= times:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return len(calls)

    assert entries.unless_stale(lambda: stale(2)) == 3
    calls.clear()
    with pytest.raises(OSError, match="Stale file handle"):
        entries.unless_stale(lambda: stale(99))
    assert len(calls) == 3


def twice(call: Callable[..., None]) -> Callable[..., None]:
    """Return a call that is done twice, as by an NFS client whose first answer was lost."""

    def repeated(*args: object, **more: object) -> None:
        call(*args, **more)
        call(*args, **more)

    return repeated


# ---- permissions -----------------------------------------------------------------------------------------------------

NOBODY = 65534


@needs_root
@pytest.mark.parametrize("umask", [0o077, 0o022, 0o000])
@pytest.mark.parametrize(
    ("of_folder", "gid", "made", "file", "private"),
    [
        (0o700, ONE.gid, 0o700, 0o600, 0o600),
        (0o755, ONE.gid, 0o755, 0o644, 0o600),
        (0o750, TEAM, 0o750, 0o640, 0o600),
        (0o2775, TEAM, 0o2775, 0o664, 0o660),
        (0o775, TEAM, 0o2775, 0o664, 0o660),
        (0o2770, TEAM, 0o2770, 0o660, 0o660),
        (0o777, ONE.gid, 0o2777, 0o666, 0o666),
        (0o1777, ONE.gid, 0o2775, 0o664, 0o660),  # users must not change each other's files
        (0o775, NOBODY, 0o755, 0o644, 0o600),  # ONE cannot give files to this group: its members count as others
        (0o777, NOBODY, 0o2777, 0o666, 0o666),
    ],
)
def test_new_entries_have_the_permissions_of_their_folder(
    of_folder: int, gid: int, made: int, file: int, private: int, umask: int
) -> None:
    def make() -> None:
        fd = entries.open_folder(str(parent), ("below", "deeper"), make=True)
        os.close(entries.new_file(fd, "file"))
        os.close(entries.new_file(fd, "secret", private=True))

    with shared_folder() as volume:
        parent = volume / "output"
        parent.mkdir()
        os.chown(parent, ONE.uid, gid)
        parent.chmod(of_folder)
        run_as(User(ONE.uid, ONE.gid, ONE.groups, umask), make)
        deeper = parent / "below" / "deeper"
        found = [mode(deeper.parent), mode(deeper), mode(deeper / "file"), mode(deeper / "secret")]
        assert list(map(oct, found)) == list(map(oct, [made, made, file, private]))
        groups = {path.stat().st_gid for path in (deeper.parent, deeper, deeper / "file", deeper / "secret")}
        assert groups == {ONE.gid if gid == NOBODY else gid}


@needs_root
def test_missing_parents_have_the_permissions_of_the_folder_above_them() -> None:
    with shared_folder() as volume:
        os.chown(volume, 0, TEAM)
        volume.chmod(0o2775)
        run_as(ONE, lambda: os.close(entries.open_folder(str(volume / "a" / "b"), (), make=True)))
        assert [mode(volume / "a"), mode(volume / "a" / "b")] == [0o2775, 0o2775]
        run_as(TWO, lambda: os.close(entries.open_folder(str(volume / "a" / "b" / "c"), (), make=True)))
        with pytest.raises(PermissionError):
            run_as(STRANGER, lambda: os.close(entries.open_folder(str(volume / "a" / "d"), (), make=True)))
