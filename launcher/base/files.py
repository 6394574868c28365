"""Small files on the volume. Readers see a complete file or no file.

All functions block while the volume blocks: the event loop must not call them.

Temporary files are hidden files in the same folder. Their names are random, so writers in several pods never share a
file. After a crash, a temporary file of a few KiB may remain. It is not removed: another pod may still be writing it.

The next attempt may have to write the same files under another uid of the same group. So all files and folders have the
permissions of their folder, and the job's folder decides who else may write (see `entries`). The job's secret can be
read only by users who may write to the job's folder: they can change the training program, too.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from launcher.base import entries
from launcher.base.entries import TooLarge, WrongKind
from launcher.base.file_errors import cannot_read, cannot_write, printable
from launcher.errors import Exit, Failure

T = TypeVar("T")

log = logging.getLogger(__name__)

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_CLAIM = 10.0  # seconds after which the process that made a claim file counts as dead
_POLL = 0.05
_TRIES = 3
LIMIT = 4 * 1024 * 1024  # bytes: job.json of 1,000 members has 0.4 MiB


class FromVolume(Protocol):
    """Run blocking work on the volume and return its result. Raises Failure if the volume does not answer."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class Folder:
    """A folder of the launchers on the volume: `names` below the folder `root`.

    The user chose `root`, which may be a link. No link is followed below it. The folder is opened anew for each call,
    so that NFS asks its server for the present content. Writing makes folders that are missing. All methods raise
    Failure. They try again, a few times, if NFS answers that a file handle is stale.
    """

    def __init__(self, root: str, *names: str) -> None:
        if wrong := [name for name in names if "/" in name or "\0" in name or name in ("", ".", "..")]:
            raise Failure(Exit.CONFIG, f"{wrong[0]!r} cannot be the name of a folder in {printable(root)}")
        self._root = root
        self._names = names
        self.path = os.path.join(root, *names)

    def below(self, *names: str) -> Folder:
        return Folder(self._root, *self._names, *names)

    def path_of(self, name: str) -> str:
        """Return the path of a file, or of the folder if there is no name, for messages."""
        return os.path.join(self.path, name) if name else self.path

    def make(self) -> None:
        self.write_by(lambda folder: None)

    def changed_at(self) -> float:
        """Return when a name in the folder was last added or removed, or 0.0 if the folder is missing."""
        return self.read_by(lambda folder: os.fstat(folder).st_mtime) or 0.0

    def names(self) -> list[str]:
        """Return all names in the folder, or an empty list if the folder is missing."""
        return self.read_by(lambda folder: os.listdir(folder)) or []

    def folders(self) -> list[str]:
        """Return the names of the folders in the folder."""
        return self.read_by(entries.folders) or []

    def read(self, name: str, limit: int = LIMIT) -> bytes | None:
        """Return the content of a file, or None if the file is missing."""
        path = self.path_of(name)
        return self.read_by(lambda folder: entries.read_file(folder, name, path, limit), name)

    def exists(self, name: str) -> bool:
        """Return whether the file exists. An I/O error does not mean that the file is missing."""
        return self.stat(name) is not None

    def stat(self, name: str) -> os.stat_result | None:
        """Return the attributes of a file, or None if the file is missing."""
        path = self.path_of(name)

        def stat(folder: int) -> os.stat_result:
            fd = entries.open_file(folder, name, path)  # opening makes an NFS client ask the server
            try:
                return os.fstat(fd)
            finally:
                os.close(fd)

        return self.read_by(stat, name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file. Readers see the complete old content or the complete new content, even after a crash."""
        self.write_by(partial(_replace, name=name, data=data), name)

    def mark(self, name: str, data: bytes) -> None:
        """Create a file whose existence counts. On a full volume, the file is created without its content."""

        def mark(folder: int) -> None:
            try:
                _replace(folder, name, data)
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                _replace(folder, name, b"")

        self.write_by(mark, name)

    def create(self, name: str, data: bytes, *, private: bool = False, limit: int = LIMIT) -> bytes:
        """Create a file unless it exists. Return its content, which is the same for all callers.

        private: only users who may write to the folder may read the file

        If the volume has no hard links, the process that creates a claim file creates the file. If this process dies,
        the other processes wait 10 s and then remove the claim file. If two processes remove the claim file at the same
        time, they may return different contents.
        """
        path = self.path_of(name)

        def create(folder: int) -> bytes:
            try:
                return entries.read_file(folder, name, path, limit)
            except FileNotFoundError:
                pass
            temporary = _temporary(name)
            entries.write_new(folder, temporary, data, private=private)
            try:
                _settle(folder, temporary, name)
                return entries.read_file(folder, name, path, limit)
            finally:
                entries.remove(folder, temporary)
                entries.sync(folder)

        return self.write_by(create, name)

    def append(self, name: str, lines: bytes) -> None:
        """Append whole lines to a file that only this process writes, and sync it.

        If the volume takes only a part, remove this part again. If the file ends within a line, as after a power loss,
        end that line first.
        """

        def append(folder: int) -> str:
            fd, replaced = entries.open_log(folder, name, self.path_of(name))
            try:
                size = os.fstat(fd).st_size
                broken = size and os.pread(fd, 1, size - 1) != b"\n"
                view = memoryview(b"\n" + lines if broken else lines)
                try:
                    while view:
                        view = view[os.write(fd, view) :]
                    os.fdatasync(fd)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(fd, size)
                    raise
            finally:
                os.close(fd)
            return replaced

        if replaced := self.write_by(append, name):
            log.warning(replaced)

    def read_end(self, name: str, most: int) -> bytes | None:
        """Return at most the last `most` bytes of a file, from the beginning of a line. None if the file is missing."""
        path = self.path_of(name)

        def read(folder: int) -> bytes:
            fd = entries.open_file(folder, name, path)
            try:
                skipped = max(os.fstat(fd).st_size - most, 0)
                os.lseek(fd, skipped, os.SEEK_SET)
                data = entries.read_at_most(fd, most)
            finally:
                os.close(fd)
            return data[data.find(b"\n") + 1 :] if skipped else data

        return self.read_by(read, name)

    def remove(self, name: str) -> None:
        """Remove a file. Do nothing if the file is missing."""
        self.read_by(lambda folder: entries.remove(folder, name), name, cannot_write)

    def read_by(
        self,
        work: Callable[[int], T],
        name: str = "",
        failure: Callable[[str, OSError], Failure] = cannot_read,
    ) -> T | None:
        """Return the result of the work on a descriptor of the folder. Return None if the work finds nothing.

        name: the file on which the work is done, for messages
        """
        try:
            return entries.unless_stale(lambda: self._with_descriptor(work, make=False))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise failure(self.path_of(name), error) from error

    def write_by(self, work: Callable[[int], T], name: str = "") -> T:
        """Return the result of the work on a descriptor of the folder, which is made if it is missing.

        Do the work again, at most twice, if another process has removed the folder meanwhile.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return entries.unless_stale(lambda: self._with_descriptor(work, make=True))
            except OSError as error:
                if tries_left and isinstance(error, FileNotFoundError):
                    continue
                raise cannot_write(self.path_of(name), error) from error
        raise AssertionError("unreachable")

    def open_log(self, name: str) -> tuple[int, str]:
        """Open a file for appending. See `entries.open_log`. Raises OSError."""
        path = self.path_of(name)
        return entries.unless_stale(
            lambda: self._with_descriptor(lambda folder: entries.open_log(folder, name, path), make=True)
        )

    def _with_descriptor(self, work: Callable[[int], T], *, make: bool) -> T:
        folder = entries.open_folder(self._root, self._names, make=make)
        try:
            return work(folder)
        finally:
            os.close(folder)


def write_atomically(path: str, data: bytes) -> None:
    """Write a file in a folder that the user chose. See `Folder.write`."""
    folder, name = os.path.split(path)
    Folder(folder or ".").write(name, data)


def make_folder(path: str) -> None:
    """Make a folder and its missing parents, with the permissions of the folder that contains them."""
    Folder(path).make()


def exists(path: str) -> bool:
    """Return whether the path exists. Raises Failure on an I/O error, which does not mean that the path is missing."""
    return _mode(path) is not None


def is_folder(path: str) -> bool:
    """Return whether the path is a folder. Raises Failure on an I/O error."""
    return stat.S_ISDIR(_mode(path) or 0)


def _mode(path: str) -> int | None:
    try:
        return entries.unless_stale(lambda: os.stat(path)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_read(path, error) from None


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Do nothing on SMB and FUSE mounts that cannot do this. Raises OSError."""

    def sync() -> None:
        folder = entries.open_folder(path, ())
        try:
            entries.sync(folder)
        finally:
            os.close(folder)

    try:
        entries.unless_stale(sync)
    except PermissionError:
        pass


def _temporary(name: str) -> str:
    return f".{name}.{os.urandom(8).hex()}.tmp"


def _replace(folder: int, name: str, data: bytes) -> None:
    temporary = _temporary(name)
    entries.write_new(folder, temporary, data)
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        if not _contains(folder, name, data):  # else NFS has repeated the request after its answer was lost
            raise
    except BaseException:
        entries.remove(folder, temporary)
        raise
    entries.sync(folder)


def _contains(folder: int, name: str, data: bytes) -> bool:
    try:
        return entries.read_file(folder, name, name, len(data)) == data
    except (FileNotFoundError, WrongKind, TooLarge):
        return False


def _settle(folder: int, temporary: str, name: str) -> None:
    """Create `name` from the temporary file unless `name` exists."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        pass  # created by another pod, or by this one: NFS may repeat a request whose answer was lost
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _settle_by_claim(folder, temporary, name)


def _settle_by_claim(folder: int, temporary: str, name: str) -> None:
    claim = f".{name}.claim"
    deadline = time.monotonic() + _CLAIM
    while not entries.is_there(folder, name):
        try:
            os.close(entries.new_file(folder, claim))
        except FileExistsError:
            if time.monotonic() > deadline:
                entries.remove(folder, claim)
                deadline = time.monotonic() + _CLAIM
            time.sleep(_POLL)
            continue
        try:
            if not entries.is_there(folder, name):
                entries.move(temporary, name, folder)
        finally:
            entries.remove(folder, claim)
