"""Entries of folders on the volume: files and folders are opened by name, relative to a descriptor of their folder.

No function follows a link or blocks at a FIFO. Another user of the volume may have made such an entry, so that the
launcher writes to another file of its own user.

Each new entry gets its group and its permissions from its folder. So the permissions of the job's folder decide who may
write to the files of the launcher. Two users with a common group can continue with each other's files.

All functions raise OSError, and block while the volume blocks: the event loop must not call them.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_SUPPORTED = (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_NO_FOLDER_SYNC = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EACCES}
_TRIES = 3
_CHUNK = 64 * 1024
_SETTLED = 0.05  # seconds
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISREG, "a file"),
)


class WrongKind(OSError):
    """The entry is a link, a FIFO or the like, where a launcher makes only files and folders. `path`: for messages."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.ELOOP, what)
        self.path = path
        self.what = what


class TooLarge(OSError):
    """The file is larger than any file that a launcher writes there."""

    def __init__(self, limit: int) -> None:
        super().__init__(errno.EFBIG, f"it has more than {limit} bytes")


def unless_stale(work: Callable[[], T]) -> T:
    """Return the result of the work. Do the work again, at most twice, if NFS answers that a file handle is stale.

    The work must begin with a path: a name then finds the file that is there now.
    """
    for _ in range(_TRIES - 1):
        try:
            return work()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return work()


# ---- folders ---------------------------------------------------------------------------------------------------------


def open_folder(root: str, names: tuple[str, ...], *, make: bool = False) -> int:
    """Return a descriptor of the folder `names` below `root`. The user chose `root`, which may be a link.

    make: make the folders that are missing, `root` and its parents included
    """
    try:
        folder = os.open(root, _FOLDER)
    except FileNotFoundError:
        if not make:
            raise
        _make_root(root)
        folder = os.open(root, _FOLDER)
    for depth, name in enumerate(names):
        try:
            below = _open_below(folder, name, os.path.join(root, *names[: depth + 1]), make)
        finally:
            os.close(folder)
        folder = below
    return folder


def _make_root(root: str) -> None:
    missing = []
    while root and not os.path.isdir(root):
        missing.append(root)
        root = os.path.dirname(root.rstrip("/"))
    for path in reversed(missing):
        parent, name = os.path.split(path.rstrip("/"))
        folder = os.open(parent or ".", _FOLDER)
        try:
            _make_folder(folder, name)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        finally:
            os.close(folder)


def _open_below(folder: int, name: str, path: str, make: bool) -> int:
    for _ in range(_TRIES):
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
        except PermissionError:
            if not make:
                raise
            time.sleep(_SETTLED)  # another pod may have made the folder, and has not set its permissions yet
            continue
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                raise WrongKind(path, f"is {kind_of(mode)}, not a folder") from None
        try:
            _make_folder(folder, name)
        except FileExistsError:
            pass  # made by another pod
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)


def _make_folder(folder: int, name: str) -> None:
    """Make a folder. Raises FileExistsError if it exists, unless NFS has repeated the request."""
    of = os.fstat(folder)
    same_group = bool(of.st_mode & stat.S_ISGID) or of.st_gid == os.getegid()
    exists = None
    try:
        os.mkdir(name, _folder_mode(of, same_group) & 0o777, dir_fd=folder)
    except FileExistsError as error:
        exists = error
    try:
        made = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        raise exists or error from None
    try:
        if exists and os.fstat(made).st_uid != os.geteuid():
            raise exists
        _adopt(made, of, _folder_mode)
    finally:
        os.close(made)
    sync(folder)


def folders(folder: int) -> list[str]:
    """Return the names of the folders in a folder. Links to folders do not count."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def sync(folder: int) -> None:
    """Make the names in a folder durable. Do nothing on SMB and FUSE mounts that cannot do this."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


# ---- files -----------------------------------------------------------------------------------------------------------


def kind_of(mode: int) -> str:
    """Return what an entry with this mode is, in words."""
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "a device")


def open_file(folder: int, name: str, path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file that exists. Raises WrongKind, which has `path`, if the entry is not a file."""
    try:
        fd = os.open(name, flags | _SAFE, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        raise WrongKind(path, f"is {kind_of(mode)}, not a file") from None
    try:
        if not stat.S_ISREG(mode := os.fstat(fd).st_mode):
            raise WrongKind(path, f"is {kind_of(mode)}, not a file")
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def new_file(folder: int, name: str, flags: int = 0, *, private: bool = False) -> int:
    """Create a file and open it for reading and writing. Raises FileExistsError if there is any entry of this name.

    private: only users who may write to the folder can read the file
    """
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags | _SAFE, 0o600, dir_fd=folder)
    try:
        _adopt(fd, os.fstat(folder), _private_mode if private else _file_mode)
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_log(folder: int, name: str, path: str) -> tuple[int, str]:
    """Open a file for appending, and create it if it is missing. Return its descriptor, and a warning or "".

    Another user may have made a link, a FIFO, or a second name (hard link) of another file. Such an entry is renamed,
    and a new log begins. So nothing is lost, and no other file is changed.
    """
    said = ""
    for _ in range(_TRIES):
        try:
            fd = open_file(folder, name, path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            pass
        except WrongKind as wrong:
            said = _rename_aside(folder, name, wrong)
        else:
            if os.fstat(fd).st_nlink <= 1:  # 0 on some mounts, which have no links
                return fd, said
            os.close(fd)
            said = _rename_aside(folder, name, WrongKind(path, "is a file with a second name (a hard link)"))
        try:
            return new_file(folder, name, os.O_APPEND), said
        except FileExistsError:
            pass  # created by another process: look again what it is
    raise WrongKind(path, "is replaced again and again by another process")


def _rename_aside(folder: int, name: str, wrong: WrongKind) -> str:
    aside = f"{name}.replaced-{os.urandom(4).hex()}"
    try:
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ESTALE:
            raise
        raise wrong from None
    return f"{wrong.path} {wrong.what}: renamed to {aside}, and a new log begins: did another user make it?"


def read(fd: int, limit: int) -> bytes:
    """Return the content of an open file. Raises TooLarge if it has more than `limit` bytes."""
    data = bytearray()
    while part := os.read(fd, min(limit + 1 - len(data), _CHUNK)):
        data += part
        if len(data) > limit:
            raise TooLarge(limit)
    return bytes(data)


def read_at_most(fd: int, most: int) -> bytes:
    """Return the next bytes of an open file, at most this many. Another process may be appending to the file."""
    data = bytearray()
    while len(data) < most and (part := os.read(fd, min(most - len(data), _CHUNK))):
        data += part
    return bytes(data)


def read_file(folder: int, name: str, path: str, limit: int) -> bytes:
    """Return the content of a file. Raises WrongKind or TooLarge if no launcher has written it."""
    fd = open_file(folder, name, path)
    try:
        return read(fd, limit)
    finally:
        os.close(fd)


def write_new(folder: int, name: str, data: bytes, *, private: bool = False) -> None:
    """Create a file with this content, and sync it. If this fails, remove the file."""
    fd = new_file(folder, name, private=private)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
    except BaseException:
        remove(folder, name)
        raise


def remove(folder: int, name: str) -> None:
    """Remove an entry. Do nothing if it is missing, or was removed by a request that NFS has repeated."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def move(source: str | bytes, target: str | bytes, folder: int | None = None) -> None:
    """Rename. If NFS repeats the request because its answer was lost, the server answers that the source is missing.

    Assumes that only this process writes to `target`: if the source is missing, the entry there is the renamed one.
    """
    try:
        os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        if is_there(folder, source) or not is_there(folder, target):
            raise


def is_there(folder: int | None, name: str | bytes) -> bool:
    """Return whether there is an entry of this name. A link whose target is missing counts."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# ---- group and permissions -------------------------------------------------------------------------------------------


def _adopt(fd: int, folder: os.stat_result, mode_in: Callable[[os.stat_result, bool], int]) -> None:
    """Give a new entry the group and the permissions that follow from its folder, regardless of the umask.

    A mount with fixed modes refuses the change.
    """
    found = os.fstat(fd)
    same_group = found.st_gid == folder.st_gid or _accepted(lambda: os.fchown(fd, -1, folder.st_gid))
    mode = mode_in(folder, same_group)
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        _accepted(lambda: os.fchmod(fd, mode))


def _accepted(change: Callable[[], None]) -> bool:
    try:
        change()
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        return False
    return True


def _folder_mode(folder: os.stat_result, same_group: bool) -> int:
    bits = _bits_of_others(folder, same_group)
    return 0o700 | bits | (stat.S_ISGID if bits & stat.S_IWGRP else 0)  # S_ISGID: entries in it keep its group


def _file_mode(folder: os.stat_result, same_group: bool) -> int:
    return 0o600 | _bits_of_others(folder, same_group) & 0o066


def _private_mode(folder: os.stat_result, same_group: bool) -> int:
    bits = _bits_of_others(folder, same_group)
    may_write = bits & 0o022
    return 0o600 | may_write | (may_write << 1) & bits


def writers(folder: os.stat_result) -> int:
    """Return the permissions of group and others to write to the folder."""
    return _bits_of_others(folder, True) & 0o022


def _bits_of_others(folder: os.stat_result, same_group: bool) -> int:
    """Return the permissions of group and others.

    In a folder with the sticky bit, users must not change each other's entries. Without the folder's group, the members
    of the entry's group are others.
    """
    bits = folder.st_mode & 0o077
    if folder.st_mode & stat.S_ISVTX:
        bits &= ~stat.S_IWOTH
    return bits if same_group else (bits & 0o007) * 0o11
