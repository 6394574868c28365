"""Create, copy and remove files, folders and links. The pool's workers call these functions, since they may block.

Paths are bytes, since names on a volume need not be UTF-8. Arguments and results are of types that `marshal` knows.
"""

from __future__ import annotations

import ctypes
import errno
import os

from launcher.base import entries
from launcher.base.file_errors import cannot_read, cannot_write, printable
from launcher.data import progress
from launcher.data.inspection import File, Link, is_below
from launcher.errors import Exit, Failure

PART = b".paddle-part-"  # the name of an incomplete file or folder begins with this

_SMALL = 256 * 1024  # up to this size, one read and one write are faster than copying inside the kernel
_CHUNK = 8 * 1024 * 1024  # bytes per system call: progress is counted after each call
_BUFFER = 1024 * 1024
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # do not block if the source is now a FIFO


# Create


def make_with_parents(path: bytes) -> None:
    """Make a folder and its missing parents. Do nothing if the folder exists. Only this user can write to them."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path.rstrip(b"/"))
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o755)
        except OSError as error:
            if error.errno != errno.EEXIST or not os.path.isdir(folder):
                raise cannot_write(folder, error) from error


def make_folders(root: bytes, paths: list[bytes]) -> list[bytes]:
    """Make the folders that do not exist yet. Return the paths of the new folders.

    Only this user can write to a new folder, until `set_folder_attributes` sets its mode.
    """
    made = []
    for path in paths:
        absolute = _below(root, path)
        try:
            os.mkdir(absolute, 0o700)
            made.append(path)
        except OSError as error:
            if error.errno != errno.EEXIST or not os.path.isdir(absolute):
                raise cannot_write(absolute, error) from error
    return made


def set_folder_attributes(root: bytes, folders: list[tuple[bytes, int, int]]) -> None:
    """Set mode and time of folders. The caller must call this last: each new entry changes the time of its folder."""
    for path, mode, mtime in folders:
        absolute = _below(root, path)
        try:
            os.chmod(absolute, mode & 0o777 | 0o700)
            os.utime(absolute, ns=(mtime, mtime))
        except OSError as error:
            raise cannot_write(absolute, error) from error


def make_links(root: bytes, links: list[tuple[int, Link]]) -> None:
    """Make symbolic links. A link replaces a file or link that has the same path."""
    for number, (path, target) in links:
        absolute = _below(root, path)
        temporary = _temporary_path(root, number, path, False)
        try:
            os.symlink(target, temporary)
            entries.move(temporary, absolute)
        except OSError as error:
            raise cannot_write(absolute, error) from error


def write_file(path: str, data: bytes) -> None:
    """Write a small file atomically, without a sync: a sync would wait until all copied data is on the disk."""
    temporary = f"{path}.new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o644), "wb") as file:
            file.write(data)
        entries.move(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from error


def rename(old: bytes, new: bytes) -> None:
    try:
        entries.move(old, new)
    except OSError as error:
        raise cannot_write(new, error) from error


def sync(path: bytes) -> None:
    """Write all data of the file system at `path` to its disk. Raises Failure if the disk reports an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.syncfs(fd):
                raise OSError(ctypes.get_errno(), "syncfs")
        finally:
            os.close(fd)
    except OSError as error:
        raise cannot_write(path, error) from error


# Copy


def copy_files(source: bytes, root: bytes, files: list[tuple[int, File]], new_root: bool, confined: bool) -> None:
    """Copy files below `source` to the same paths below `root`.

    If `new_root` is true, no other process uses `root` yet, so files are written in place. Otherwise each file is
    written to a temporary file in the same folder, which is renamed. The temporary name contains the file's number.

    If `confined` is true, refuse a file that is not below `source`: its path was replaced by a link meanwhile.
    """
    for number, file in files:
        _copy(source, root, number, file, 0, file[2], new_root, confined, last=True)


def copy_range(
    source: bytes, root: bytes, number: int, file: File, start: int, length: int, new_root: bool, confined: bool
) -> int:
    """Copy one range of a large file. Return the file's number. The caller must call `finish_file` after all ranges."""
    _copy(source, root, number, file, start, length, new_root, confined, last=False)
    return number


def finish_file(source: bytes, root: bytes, number: int, file: File, new_root: bool, confined: bool) -> None:
    """Set the time and the name of a file that was copied in ranges. Raises Failure if its source has changed."""
    _copy(source, root, number, file, 0, 0, new_root, confined, last=True)


def copy_bytes(source: int, target: int, start: int, length: int, at: int) -> int:
    """Copy `length` bytes at offset `start` of `source` to offset `at` of `target`. Return how many were copied.

    source, target: descriptors of open files

    The kernel copies the bytes if both file systems allow this. Otherwise the kernel returns one of many different
    errors, or copies 0 bytes. So after any problem the next method is tried. Only the last method raises OSError.
    """
    done = 0
    if length > _SMALL:
        os.posix_fadvise(source, start, length, os.POSIX_FADV_SEQUENTIAL)  # read ahead further: fewer round trips
    for method in (_read_and_write,) if length <= _SMALL else (_copy_file_range, _sendfile, _read_and_write):
        try:
            while done < length:
                count = method(source, target, start + done, at + done, min(_CHUNK, length - done))
                if count == 0:
                    break
                done += count
                progress.count_bytes(count)
        except OSError:
            if method is _read_and_write:
                raise
    return done


def _copy(
    source: bytes,
    root: bytes,
    number: int,
    file: File,
    start: int,
    length: int,
    new_root: bool,
    confined: bool,
    *,
    last: bool,
) -> None:
    origin, target = _below(source, file[0]), _below(root, file[0])
    written = _temporary_path(root, number, file[0], new_root)
    try:
        entries.unless_stale(
            lambda: _copy_once(origin, written, file, start, length, source if confined else b"", last=last)
        )
        if last and not new_root:
            entries.move(written, target)
    except OSError as error:
        raise _copy_failed(origin, target, error) from error


def _copy_once(
    origin: bytes, written: bytes, file: File, start: int, length: int, confined_to: bytes, *, last: bool
) -> None:
    _, offset, full, size, mtime, mode = file
    try:
        reading = entries.unless_stale(lambda: os.open(origin, _READING))
    except OSError as error:
        raise cannot_read(origin, error) from error
    try:
        if confined_to and not is_below(confined_to, os.readlink(b"/proc/self/fd/%d" % reading)):
            raise _changed(origin)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if length == full else 0)
        writing = os.open(written, flags, mode & 0o777 | 0o600)
        try:
            copied = copy_bytes(reading, writing, offset + start, length, start)
            stat = os.fstat(reading)
            if copied < length or (stat.st_size, stat.st_mtime_ns) != (size, mtime):
                raise _changed(origin)
            if last:
                if length < full:
                    os.ftruncate(writing, full)  # a killed run may have left a longer file
                os.utime(writing, ns=(mtime, mtime))
        finally:
            os.close(writing)  # a network file system may report a full disk only here
    finally:
        os.close(reading)


def _temporary_path(root: bytes, number: int, path: bytes, new_root: bool) -> bytes:
    name = path if new_root else os.path.join(os.path.dirname(path), PART + b"%d" % number)
    return _below(root, name)


def _below(root: bytes, path: bytes) -> bytes:
    return b"%b/%b" % (root, path)


def _copy_file_range(source: int, target: int, start: int, at: int, length: int) -> int:
    return os.copy_file_range(source, target, length, start, at)


def _sendfile(source: int, target: int, start: int, at: int, length: int) -> int:
    os.lseek(target, at, os.SEEK_SET)
    return os.sendfile(target, source, start, length)


def _read_and_write(source: int, target: int, start: int, at: int, length: int) -> int:
    data = os.pread(source, min(length, _BUFFER), start)
    return os.pwrite(target, data, at) if data else 0  # after a short write, the rest is read again


def _copy_failed(origin: bytes, target: bytes, error: OSError) -> Failure:
    """Return the failure for an error that may come from reading `origin` or from writing `target`."""
    refused = cannot_write(target, error)
    if refused.code == Exit.CANNOT_WRITE or error.filename is not None:
        return refused
    return Failure(
        Exit.IO_FAILED,
        f"copying {printable(origin)} to {printable(target)} failed: {error.strerror}: check both volumes",
    )


def _changed(origin: bytes) -> Failure:
    return Failure(
        Exit.IO_FAILED,
        f"{printable(origin)} changed while it was copied: start again after all writes to this file have ended",
    )


# Remove


def remove_files(root: bytes, paths: list[bytes]) -> None:
    """Remove files and links. Ignore paths that do not exist."""
    for path in paths:
        absolute = os.path.join(root, path)
        try:
            os.unlink(absolute)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise cannot_write(absolute, error) from error


def remove_empty_folders(root: bytes, paths: list[bytes]) -> None:
    """Remove those of these folders that are empty."""
    for path in paths:
        absolute = os.path.join(root, path)
        try:
            os.rmdir(absolute)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise cannot_write(absolute, error) from error


def remove_leftovers(root: bytes, folders: list[bytes]) -> None:
    """Remove the temporary files that a killed run has left directly in these folders."""
    for path in folders:
        absolute = os.path.join(root, path)
        try:
            names = [name for name in os.listdir(absolute) if name.startswith(PART)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise cannot_write(absolute, error) from error
        remove_files(absolute, names)
