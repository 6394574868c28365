"""Makes files, folders and links. Run by workers, since all of it may block.

Paths are bytes: names on a volume need not be UTF-8. Arguments and results are plain enough for `marshal`.
"""

from __future__ import annotations

import ctypes
import errno
import os

from launcher.base.files import cannot_read, cannot_write, shown
from launcher.data import byte_counter
from launcher.data.content import move
from launcher.data.inspection import File, Link
from launcher.errors import Exit, Failure

PART = b".paddle-part-"  # begins the name of a file or folder that is not complete yet


def make_all_folders(path: bytes) -> None:
    """A folder, and what is missing above it."""
    try:
        os.makedirs(path, 0o777, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def make_folders(root: bytes, paths: list[bytes]) -> list[bytes]:
    """Make folders where there are none; gives those that were made."""
    made = []
    for path in paths:
        whole = _below(root, path)
        try:
            os.mkdir(whole, 0o777)
            made.append(path)
        except OSError as error:
            if error.errno != errno.EEXIST or not os.path.isdir(whole):
                raise cannot_write(whole, error) from error
    return made


def dress_folders(root: bytes, folders: list[tuple[bytes, int, int]]) -> None:
    """Give folders their mode and time, once nothing more will be put into them."""
    for path, mode, mtime in folders:
        whole = _below(root, path)
        try:
            os.chmod(whole, mode & 0o777 | 0o700)
            os.utime(whole, ns=(mtime, mtime))
        except OSError as error:
            raise cannot_write(whole, error) from error


def make_links(root: bytes, links: list[tuple[int, Link]]) -> None:
    """Make links, over whatever file or link has the name."""
    for number, (path, leads) in links:
        whole = _below(root, path)
        temporary = _place(root, number, path, False)
        try:
            os.symlink(leads, temporary)
            os.rename(temporary, whole)
        except OSError as error:
            raise cannot_write(whole, error) from error


def copy_files(source: bytes, root: bytes, files: list[tuple[int, File]], fresh: bool) -> None:
    """Copy files below `source` to the same paths below `root`.

    Unless the whole of root is fresh and gets its name later, each file is made beside (its number makes that name
    its own) and renamed when it is complete.
    """
    for number, file in files:
        _copy(source, root, number, file, 0, file[2], fresh, last=True)


def copy_range(source: bytes, root: bytes, number: int, file: File, start: int, length: int, fresh: bool) -> int:
    """Copy one range of a large file, and give its number. `finish_file` comes after all ranges."""
    _copy(source, root, number, file, start, length, fresh, last=False)
    return number


def finish_file(source: bytes, root: bytes, number: int, file: File, fresh: bool) -> None:
    """Give a file that was copied by ranges its time and its name, if its origin is still what it was."""
    _copy(source, root, number, file, 0, 0, fresh, last=True)


def _copy(
    source: bytes, root: bytes, number: int, file: File, start: int, length: int, fresh: bool, *, last: bool
) -> None:
    path, offset, full, size, mtime, mode = file
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if length == full else 0)
    origin, target, made = _below(source, path), _below(root, path), _place(root, number, path, fresh)
    try:
        reading = os.open(origin, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not held by a FIFO put there meanwhile
    except OSError as error:
        raise cannot_read(origin, error) from error
    try:
        writing = os.open(made, flags, mode & 0o777 | 0o600)
        try:
            copied = move(reading, writing, offset + start, length, start, byte_counter.add)
            about = os.fstat(reading)
            if copied < length or (about.st_size, about.st_mtime_ns) != (size, mtime):
                raise _changed(origin)
            if last:
                if length < full:
                    os.ftruncate(writing, full)  # something longer may have been left there
                os.utime(writing, ns=(mtime, mtime))
        finally:
            os.close(writing)  # a network file system may tell only here that it is full
        if last and not fresh:
            os.rename(made, target)
    except OSError as error:
        raise _failed(origin, target, error) from error
    finally:
        os.close(reading)


def _place(root: bytes, number: int, path: bytes, fresh: bool) -> bytes:
    return _below(root, path) if fresh else _below(root, os.path.join(os.path.dirname(path), PART + b"%d" % number))


def _below(root: bytes, path: bytes) -> bytes:
    return b"%b/%b" % (root, path)


def rename(old: bytes, new: bytes) -> None:
    """Give a file or folder its name."""
    try:
        os.rename(old, new)
    except OSError as error:
        raise cannot_write(new, error) from error


def sync(path: bytes) -> None:
    """Have the file system that holds the path write all it was given, and tell what it could not write."""
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


def _failed(origin: bytes, target: bytes, error: OSError) -> Failure:
    """A failure between two open files, or on opening the second: either may be at fault."""
    refused = cannot_write(target, error)
    if refused.code == Exit.CANNOT_WRITE or error.filename is not None:
        return refused
    return Failure(
        Exit.IO_FAILED, f"copying {shown(origin)} to {shown(target)} failed: {error.strerror}: check both volumes"
    )


def _changed(origin: bytes) -> Failure:
    return Failure(
        Exit.IO_FAILED, f"{shown(origin)} changed while it was copied: start again when nothing writes there any more"
    )
