"""What is there: folders, files, links, room. Run by workers, since all of it may block.

Paths are bytes: names on a volume need not be UTF-8. Arguments and results are plain enough for `marshal`.
"""

from __future__ import annotations

import errno
import os
import stat

from launcher.base.files import cannot_read, cannot_write

File = tuple[bytes, int, int, int, int, int]  # path, start and length of the part to copy, whole size, mtime, mode
Link = tuple[bytes, bytes]  # path, where it leads
Unlike = tuple[list[File], list[Link], int, int]  # what is to be copied, how many of it are there, and their bytes
Look = tuple[bytes, str, int, int, int, bytes]  # path, kind, size, mtime, mode, where a link leads


def real(path: bytes) -> bytes:
    """The path without links."""
    return os.path.realpath(path)


def exists(path: bytes) -> str:
    """What is at the path, behind links: "folder", "something else", or nothing."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise cannot_read(path, error) from error
    return "folder" if stat.S_ISDIR(mode) else "something else"


def around(path: bytes) -> tuple[bytes, list[bytes]]:
    """The nearest folder above that exists, and the names in it. A path that ends with a slash counts itself."""
    while True:
        path = os.path.dirname(path) or b"/"
        try:
            return path, sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise cannot_read(path, error) from error


def list_folder(root: bytes, path: bytes) -> tuple[bytes, int, int, list[bytes], list[bytes]]:
    """A folder below root: its mode and time, the folders in it, and all else in it."""
    folders: list[bytes] = []
    others: list[bytes] = []
    whole = os.path.join(root, path)
    try:
        about = os.stat(whole)
        with os.scandir(whole) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else others).append(os.path.join(path, entry.name))
    except OSError as error:
        raise cannot_read(whole, error) from error
    return path, about.st_mode, about.st_mtime_ns, folders, others


def look_at(root: bytes, paths: list[bytes]) -> list[Look]:
    """Files, links and the rest, as they are to be copied.

    A link that stays inside root is copied as a link. One that leads out of it to a file is copied as that file, one
    that leads to a folder outside as a link to where that folder is now.
    """
    return [_look_at(root, path) for path in paths]


def _look_at(root: bytes, path: bytes) -> Look:
    whole = b"%b/%b" % (root, path)
    try:
        about = os.lstat(whole)
        if stat.S_ISLNK(about.st_mode):
            return _look_at_link(root, path, about)
    except OSError as error:
        raise cannot_read(whole, error) from error
    kind = "file" if stat.S_ISREG(about.st_mode) else "special"
    return path, kind, about.st_size, about.st_mtime_ns, about.st_mode, b""


def _look_at_link(root: bytes, path: bytes, about: os.stat_result) -> Look:
    whole = os.path.join(root, path)
    leads = os.readlink(whole)
    there = os.path.normpath(os.path.join(os.path.dirname(whole), leads))
    kind = "link"
    try:
        behind = os.stat(whole)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        kind = "dangling"
    else:
        if not there.startswith(root.rstrip(b"/") + b"/"):
            if stat.S_ISREG(behind.st_mode):
                return path, "file", behind.st_size, behind.st_mtime_ns, behind.st_mode, b""
            kind, leads = "outside", there
    return path, kind, 0, about.st_mtime_ns, about.st_mode, leads


def differing(root: bytes, files: list[File], links: list[Link], trusted: bool) -> Unlike:
    """What of these is to be copied to root.

    Where we put the same file earlier (`trusted`) and its size and time still agree, it is not copied again.
    """
    there = freed = 0
    unlike = []
    for file in files:
        about = _lstat(os.path.join(root, file[0]))
        if trusted and about and _alike(about, file):
            continue
        unlike.append(file)
        if about:
            there, freed = there + 1, freed + about.st_size
    return unlike, [link for link in links if _leads(os.path.join(root, link[0])) != link[1]], there, freed


def _alike(about: os.stat_result, file: File) -> bool:
    return stat.S_ISREG(about.st_mode) and (about.st_size, about.st_mtime_ns) == (file[2], file[4])


def _lstat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_write(path, error) from error


def _leads(path: bytes) -> bytes | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def room(path: bytes) -> tuple[int, int, int, int, bytes]:
    """Of the file system that would hold the path: its number, its block size, free bytes, free inodes, and where.

    Free inodes are -1 where the file system makes them as needed.
    """
    while not os.path.isdir(path):
        path = os.path.dirname(path.rstrip(b"/")) or b"/"
    try:
        about = os.statvfs(path)
        device = os.stat(path).st_dev
    except OSError as error:
        raise cannot_write(path, error) from error
    return device, about.f_frsize, about.f_bavail * about.f_frsize, about.f_favail if about.f_files else -1, path
