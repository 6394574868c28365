"""Read what folders contain and how much space is free. The pool's workers call these functions, since they may block.

Paths are bytes, since names on a volume need not be UTF-8. Arguments and results are of types that `marshal` knows.
"""

from __future__ import annotations

import errno
import os
import stat

from launcher.base import entries, files
from launcher.base.entries import unless_stale
from launcher.base.file_errors import cannot_read, cannot_write
from launcher.errors import Failure

File = tuple[bytes, int, int, int, int, int]  # path, start and length of the range to copy, whole size, mtime, mode
Link = tuple[bytes, bytes]  # path, target
Folder = tuple[bytes, int, int, list[bytes], list[bytes]]  # path, mode, mtime, the folders in it, all other entries
Entry = tuple[bytes, str, int, int, int, bytes]  # path, kind, size, mtime, mode, target of a link
Differences = tuple[list[File], list[Link], int, int]  # what to copy; number and bytes of the files that are replaced
FreeSpace = tuple[int, int, int, int, bytes]  # device, block size, free bytes, free inodes or -1, the existing folder


def resolve(path: bytes) -> bytes:
    """Return the path with all links resolved."""
    return os.path.realpath(path)


def kind_of(path: bytes, follow: bool = True) -> str:
    """Return "folder" or "something else", or "" if the path does not exist. `follow`: follow a link."""
    try:
        mode = unless_stale(lambda: os.stat(path, follow_symlinks=follow)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise cannot_read(path, error) from error
    return "folder" if stat.S_ISDIR(mode) else "something else"


def count_shards(job: bytes, first: int, most: int) -> int:
    """Return how many shards the job's folder has, from this number on without a gap. Stop counting at `most`.

    A folder that cannot be examined is no shard: it may belong to another user.
    """
    count = 0
    while count < most and _is_folder(os.path.join(job, b"%d" % (first + count), b"data")):
        count += 1
    return count


def _is_folder(path: bytes) -> bool:
    try:
        return kind_of(path) == "folder"
    except Failure:
        return False


def nearest_folder(path: bytes) -> tuple[bytes, list[bytes]]:
    """Return the nearest parent folder that exists, and the names in it. For "a/b/" the first candidate is "a/b"."""
    while True:
        path = os.path.dirname(path) or b"/"
        try:
            return path, sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise cannot_read(path, error) from error


def modes_within(path: bytes) -> int:
    """Return the permissions of new entries of the folder. Only users who can write to the folder can write to them."""
    try:
        return 0o755 | entries.writers(os.stat(path))
    except OSError as error:
        raise cannot_read(path, error) from error


def list_names(path: str) -> list[str]:
    """Return the names in a folder, or an empty list if the folder does not exist."""
    try:
        return unless_stale(lambda: os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot_read(path, error) from error


def read_file(path: str, limit: int = files.LIMIT) -> bytes:
    """Return the content of a small file, or b"" if the file does not exist."""
    folder, name = os.path.split(path)
    return files.Folder(folder or ".").read(name, limit) or b""


def read_head(path: bytes, size: int) -> bytes:
    """Return the first bytes of a file, at most `size`. Return b"" if there is no regular file at this path."""
    try:
        return unless_stale(lambda: _read_head(path, size))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except OSError as error:
        raise cannot_read(path, error) from error


def _read_head(path: bytes, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # do not wait for the writer of a FIFO
    try:
        return os.read(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)


def sizes_of(paths: list[bytes]) -> list[int]:
    """Return the size of each file, or -1 if there is no regular file at the path, or if it cannot be examined."""
    return [_size_of(path) for path in paths]


def _size_of(path: bytes) -> int:
    try:
        attributes = os.stat(path)
    except (OSError, ValueError):
        return -1
    return attributes.st_size if stat.S_ISREG(attributes.st_mode) else -1


def scan_folder(root: bytes, path: bytes) -> Folder:
    """Read the folder at `path` below `root`: its mode, its time, and the paths of its entries, relative to `root`."""
    absolute = os.path.join(root, path)
    try:
        return unless_stale(lambda: _scan_folder(absolute, path))
    except OSError as error:
        raise cannot_read(absolute, error) from error


def _scan_folder(absolute: bytes, path: bytes) -> Folder:
    folders: list[bytes] = []
    others: list[bytes] = []
    attributes = os.stat(absolute)
    with os.scandir(absolute) as found:
        for entry in found:
            (folders if entry.is_dir(follow_symlinks=False) else others).append(os.path.join(path, entry.name))
    return path, attributes.st_mode, attributes.st_mtime_ns, folders, others


def examine(root: bytes, paths: list[bytes]) -> list[Entry]:
    """Return how to copy each path.

    Copy a link to a path inside of `root` as a link. Copy a link to a file outside of `root` as that file. Copy a link
    to a folder outside of `root` as a link to the folder's absolute path.
    """
    return [_examine(root, path) for path in paths]


def links_out(root: bytes, paths: list[bytes]) -> list[Link]:
    """Return those of these links that lead out of `root`, each with the path to which it leads.

    The targets need not exist. `root` must be a path without links.
    """
    targets = [(path, os.path.realpath(b"%b/%b" % (root, path))) for path in paths]
    return [(path, target) for path, target in targets if not is_below(root, target)]


def is_below(root: bytes, path: bytes) -> bool:
    """Return whether a path is in the folder `root`. Both must be absolute paths without links."""
    return path.startswith(root.rstrip(b"/") + b"/")


def _examine(root: bytes, path: bytes) -> Entry:
    absolute = b"%b/%b" % (root, path)
    try:
        return unless_stale(lambda: _examine_entry(root, path, absolute))
    except OSError as error:
        raise cannot_read(absolute, error) from error


def _examine_entry(root: bytes, path: bytes, absolute: bytes) -> Entry:
    attributes = os.lstat(absolute)
    if stat.S_ISLNK(attributes.st_mode):
        return _examine_link(root, path, attributes)
    kind = "file" if stat.S_ISREG(attributes.st_mode) else "special"
    return path, kind, attributes.st_size, attributes.st_mtime_ns, attributes.st_mode, b""


def _examine_link(root: bytes, path: bytes, attributes: os.stat_result) -> Entry:
    absolute = os.path.join(root, path)
    target = os.readlink(absolute)
    target_path = os.path.normpath(os.path.join(os.path.dirname(absolute), target))
    kind = "link"
    try:
        of_target = os.stat(absolute)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        kind = "dangling"
    else:
        if not is_below(root, target_path):
            if stat.S_ISREG(of_target.st_mode):
                return path, "file", of_target.st_size, of_target.st_mtime_ns, of_target.st_mode, target_path
            kind, target = "outside", target_path
    return path, kind, 0, attributes.st_mtime_ns, attributes.st_mode, target


def find_differences(root: bytes, wanted: list[File], links: list[Link], ours: bool) -> Differences:
    """Return which of these files and links must be copied to `root`.

    `ours`: an earlier run has copied these files. If so, skip files with the same size and time.
    """
    replaced = freed = 0
    different = []
    for file in wanted:
        attributes = _lstat(os.path.join(root, file[0]))
        if ours and attributes and _is_same(attributes, file):
            continue
        different.append(file)
        if attributes:
            replaced, freed = replaced + 1, freed + attributes.st_size
    different_links = [link for link in links if _target(os.path.join(root, link[0])) != link[1]]
    return different, different_links, replaced, freed


def _is_same(attributes: os.stat_result, file: File) -> bool:
    same = (attributes.st_size, attributes.st_mtime_ns) == (file[2], file[4])
    return stat.S_ISREG(attributes.st_mode) and same


def _lstat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_write(path, error) from error


def _target(path: bytes) -> bytes | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def free_space(path: bytes) -> FreeSpace:
    """Return the free space of a path's file system. The path need not exist.

    If the file system has no limit of inodes, their number is -1.
    """
    while not os.path.isdir(path):
        path = os.path.dirname(path.rstrip(b"/")) or b"/"
    try:
        system = os.statvfs(path)
        device = os.stat(path).st_dev
    except OSError as error:
        raise cannot_write(path, error) from error
    free_inodes = system.f_favail if system.f_files else -1
    return device, system.f_frsize, system.f_bavail * system.f_frsize, free_inodes, path
