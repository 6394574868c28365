"""Small files on the volume. Readers see a complete file or no file.

All functions block while the volume blocks: the event loop must not call them.

Temporary files are hidden files in the same folder. Their names are random, so writers in several pods never share a
file. After a crash, a temporary file of a few KiB may remain. It is not removed: another pod may still be writing it.

The next attempt may have to write the same files under another uid. So files and folders are readable and writable for
all (0666, 0777), and so is the job's secret. The secret only protects against other hosts on the network: a user who
can write to the volume can change the training program, too.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from launcher.base import shortage
from launcher.errors import Exit, Failure

T = TypeVar("T")

_ADVICE = {
    errno.ENOSPC: "free some space on the volume, or use a larger volume",
    errno.EDQUOT: "the quota is used up: free some space, or get a larger quota",
    errno.EEXIST: "a file with this name exists: remove or rename the file, or choose another path",
    errno.ENOTDIR: "a part of this path is a file: remove or rename the file, or choose another path",
    errno.EROFS: "the file system is mounted read-only: make the mount writable",
    errno.EACCES: "this process needs permission to write to this path (runAsUser, fsGroup)",
    errno.EPERM: "this process needs permission to write to this path (runAsUser, fsGroup)",
}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EACCES}
_CLAIM = 10.0  # seconds after which the process that made a claim file counts as dead
_POLL = 0.05


class FromVolume(Protocol):
    """Run blocking work on the volume and return its result. Raises Failure if the volume does not answer."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


def printable(path: str | bytes) -> str:
    """Return the path as text for messages, with unprintable characters escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def cannot_write(path: str | bytes, error: OSError) -> Failure:
    """Return the failure for a failed write: CANNOT_WRITE if writing is refused or no space is left, else IO_FAILED."""
    if why := shortage.explain(error):
        return Failure(Exit.IO_FAILED, f"cannot write {printable(path)}: {why}")
    words = os.strerror(error.errno) if error.errno else str(error)
    advice = _ADVICE.get(error.errno or 0)
    if advice:
        return Failure(Exit.CANNOT_WRITE, f"cannot write {printable(path)}: {words}: {advice}")
    return Failure(Exit.IO_FAILED, f"writing {printable(path)} failed: {words}: check the volume of this path")


def cannot_read(path: str | bytes, error: OSError) -> Failure:
    """Return the failure for a failed read."""
    if isinstance(error, FileNotFoundError):
        return Failure(
            Exit.IO_FAILED, f"{printable(path)} disappeared while it was read: does another process remove files there?"
        )
    if why := shortage.explain(error):
        return Failure(Exit.IO_FAILED, f"cannot read {printable(path)}: {why}")
    advice = "check the volume of this path"
    if isinstance(error, PermissionError):
        advice = "this process needs permission to read this path (runAsUser, fsGroup)"
    words = os.strerror(error.errno) if error.errno else str(error)
    return Failure(Exit.IO_FAILED, f"cannot read {printable(path)}: {words}: {advice}")


def write_atomically(path: str, data: bytes) -> None:
    """Write a file. Readers see the complete old content or the complete new content, even after a crash."""
    with _failing(path):
        temporary = _write_beside(path, data)
        try:
            os.replace(temporary, path)
        except BaseException:
            _remove(temporary)
            raise
        sync_folder(path)


def create_once(path: str, data: bytes) -> bytes:
    """Create a file unless it exists. Return its content, which is the same for all callers.

    If the volume has no hard links, the process that creates a claim file creates the file. If this process dies, the
    other processes wait 10 s and then remove the claim file. If two processes remove the claim file at the same time,
    they may return different contents.
    """
    with _failing(path):
        there = read_if_exists(path)
        if there is not None:
            return there
        temporary = _write_beside(path, data)
        try:
            _settle(temporary, path)
            there = read_if_exists(path)
        finally:
            _remove(temporary)
        sync_folder(path)
    if there is None:
        raise Failure(
            Exit.IO_FAILED,
            f"{printable(path)} disappeared while it was created: does another process remove files there?",
        )
    return there


def make_folder(path: str) -> None:
    """Make a folder and its missing parents, writable by all."""
    with _failing(path):
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path.rstrip("/"))
        for folder in reversed(missing):
            try:
                os.mkdir(folder)
            except FileExistsError:
                if not os.path.isdir(folder):
                    raise
            else:
                _open_to_all(folder, 0o777)
                sync_folder(folder)


@contextmanager
def _failing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def _write_beside(path: str, data: bytes) -> str:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        _open_to_all(temporary, 0o666)
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def _open_to_all(path: str, mode: int) -> None:
    try:
        os.chmod(path, mode)  # regardless of the umask; mounts with fixed modes refuse this
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
            raise


def _settle(temporary: str, path: str) -> None:
    """Create `path` from the temporary file unless `path` exists."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # created by another pod, or by this one: NFS may repeat a request whose answer was lost
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _settle_by_claim(temporary, path)


def _settle_by_claim(temporary: str, path: str) -> None:
    folder, name = os.path.split(path)
    claim = os.path.join(folder, f".{name}.claim")
    deadline = time.monotonic() + _CLAIM
    while not os.path.exists(path):
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            if time.monotonic() > deadline:
                _remove(claim)
                deadline = time.monotonic() + _CLAIM
            time.sleep(_POLL)
            continue
        try:
            if not os.path.exists(path):
                os.rename(temporary, path)
        finally:
            _remove(claim)


def read_if_exists(path: str) -> bytes | None:
    """Return the content of a file, or None if the file does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def exists(path: str) -> bool:
    """Return whether the path exists. Raises Failure on an I/O error, which does not mean that the path is missing."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise cannot_read(path, error) from None
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def sync_folder(path: str) -> None:
    """Make the file's name durable by a sync of its folder. Do nothing on SMB and FUSE mounts that cannot do this."""
    try:
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
