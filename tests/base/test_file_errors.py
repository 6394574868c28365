"""A failure of the volume names the path, the reason and what to do."""

from __future__ import annotations

import errno

import pytest

from launcher.base import file_errors
from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from tests.support.supervising import needs_root
from tests.support.users import STRANGER, run_as, shared_folder


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
    failure = file_errors.cannot_write("/vol/job/output", OSError(number, "x"))
    assert failure.code == code
    assert "/vol/job/output" in failure.message
    assert words in failure.message


def test_a_failed_read_is_an_input_output_failure_that_names_the_file() -> None:
    failure = file_errors.cannot_read(b"/vol/a\xff\nb", PermissionError(errno.EACCES, "x"))
    assert failure.code == Exit.IO_FAILED
    assert r"/vol/a\xff\nb" in failure.message
    assert "permission to read" in failure.message


@needs_root
@pytest.mark.parametrize("refusing", ["output", "output/.launcher", "output/.launcher/job"])
def test_a_refused_write_names_the_folder_that_refuses_it_and_both_users(refusing: str) -> None:
    with shared_folder() as volume:
        (volume / refusing).mkdir(parents=True)
        (volume / refusing).chmod(0o755)
        for above in (volume / refusing).relative_to(volume).parents:
            (volume / above).chmod(0o777)
        with pytest.raises(Failure) as failed:
            run_as(STRANGER, lambda: Folder(str(volume), "output", ".launcher", "job").write("probe", b""))
    assert failed.value.code == Exit.CANNOT_WRITE
    whose = f"{volume / refusing} belongs to user 0 and group 0, with mode 0755"
    assert f"(runAsUser, fsGroup): {whose}, and this process is user {STRANGER.uid}" in failed.value.message
    assert '. docs/kubernetes.md, "Let the pods write to the volume", says' in failed.value.message


@needs_root
def test_a_refusal_by_the_sticky_bit_blames_no_folder_above() -> None:
    with shared_folder() as volume:
        volume.chmod(0o1777)
        (volume / "file").touch()
        (volume / "file").chmod(0o666)
        with pytest.raises(Failure) as failed:
            run_as(STRANGER, lambda: Folder(str(volume)).remove("file"))
    assert "permission to write to this path (runAsUser, fsGroup). docs/kubernetes.md" in failed.value.message
