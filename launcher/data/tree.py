"""Scan, compare, copy and remove whole folders. The pool's workers do the tasks."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from launcher.data import files, inspection
from launcher.data.inspection import Differences, Entry, File, Folder, Link
from launcher.data.pool import Pool, Task, batches

_RANGE = 64 * 1024 * 1024  # files larger than two ranges are copied in ranges


class Tree:
    """The content of a folder that is to be copied. Paths are relative to `root`.

    confined: copy no file that is not in `root`, even if another process replaces a path by a link meanwhile. Then
    `root` must be a path without links.
    """

    def __init__(self, root: bytes, *, confined: bool = False) -> None:
        self.root = root
        self.confined = confined
        self.folders: dict[bytes, tuple[int, int]] = {}  # mode and mtime; the path of the root itself is b""
        self.files: list[File] = []
        self.links: list[Link] = []
        self.special: list[bytes] = []  # neither file, folder nor link: not copied
        self.dangling: list[bytes] = []  # links without a target
        self.outside: list[bytes] = []  # links to folders outside of root
        self.followed: list[bytes] = []  # links to files outside of root, which are copied as files

    def size(self) -> int:
        """Return the size of all files."""
        return sum(file[2] for file in self.files)

    def restrict(self, modes: int) -> None:
        """Remove all other permissions from the copy."""
        self.folders = {path: (mode & modes, mtime) for path, (mode, mtime) in self.folders.items()}
        self.files = [(*file[:5], file[5] & modes) for file in self.files]

    def names(self) -> set[bytes]:
        """Return the paths of all folders, files and links that a copy makes. The paths of folders end with a slash."""
        folders = {path + b"/" for path in self.folders if path}
        return folders | {file[0] for file in self.files} | {link[0] for link in self.links}


def scan(pool: Pool, tree: Tree) -> None:
    """Fill the tree with the content of its root, except hidden entries at its top level (.snapshot, .git)."""

    def add_folder(folder: Folder) -> Iterator[Task]:
        path, mode, mtime, folders, others = folder
        tree.folders[path] = mode, mtime
        if not path:
            folders, others = _visible(folders), _visible(others)
        for below in folders:
            yield inspection.scan_folder, tree.root, below
        for batch in batches(others):
            yield inspection.examine, tree.root, batch

    def add(result: Folder | list[Entry]) -> Iterable[Task]:
        if isinstance(result, tuple):
            return add_folder(result)
        for entry in result:
            _add_entry(tree, entry)
        return ()

    pool.run([(inspection.scan_folder, tree.root, b"")], add)
    tree.files.sort()
    tree.links.sort()


def _visible(paths: list[bytes]) -> list[bytes]:
    return [path for path in paths if not path.startswith(b".")]


def _add_entry(tree: Tree, entry: Entry) -> None:
    path, kind, size, mtime, mode, target = entry
    if kind == "file":
        tree.files.append((path, 0, size, size, mtime, mode))
        if target:
            tree.followed.append(path)
        return
    if kind != "link":
        {"special": tree.special, "dangling": tree.dangling, "outside": tree.outside}[kind].append(path)
    if kind != "special":
        tree.links.append((path, target))


def compare(
    pool: Pool, wanted: Sequence[File], wanted_links: Sequence[Link], root: bytes, ours: Container[bytes]
) -> Differences:
    """Return which of these files and links must be copied to `root`.

    ours: the paths that an earlier run copied
    """
    different: list[File] = []
    different_links: list[Link] = []
    replaced = freed = 0

    def add(result: Differences) -> Iterable[Task]:
        nonlocal replaced, freed
        different.extend(result[0])
        different_links.extend(result[1])
        replaced, freed = replaced + result[2], freed + result[3]
        return ()

    tasks: list[Task] = [(inspection.find_differences, root, [], batch, True) for batch in batches(wanted_links)]
    for is_ours in (True, False):
        selected = [file for file in wanted if (file[0] in ours) is is_ours]
        tasks += [(inspection.find_differences, root, batch, [], is_ours) for batch in batches(selected)]
    pool.run(tasks, add)
    return different, different_links, replaced, freed


def copy(pool: Pool, tree: Tree, wanted: list[File], links: list[Link], root: bytes, new_root: bool) -> None:
    """Make all folders of the tree below `root`, and copy the files `wanted` and the links `links` of the tree.

    If `new_root` is true, no other process uses `root` yet, so files are written in place. Otherwise each file is
    written to a temporary file, which is then renamed.
    """
    made = {b""} if new_root else set()

    def record_made(result: list[bytes]) -> Iterable[Task]:
        made.update(result)
        return ()

    for level in _levels(path for path in tree.folders if path):
        pool.run([(files.make_folders, root, batch) for batch in batches(level)], record_made)
    numbered = list(enumerate(wanted))
    large = [item for item in numbered if item[1][2] > 2 * _RANGE]
    small = [item for item in numbered if item[1][2] <= 2 * _RANGE]
    ranges = {number: _ranges(tree, root, number, file, new_root) for number, file in large}

    def next_ranges(number: int | None) -> Iterable[Task]:
        """Return the next range of the same file, or the next two if the last task mostly waited for the file system.

        On a local disk one writer per file is fastest. On a network volume several writers per file are faster.
        """
        return () if number is None else islice(ranges[number], 1 + pool.last_task_waited)

    tasks: list[Task] = [task for ranges_of_file in ranges.values() for task in islice(ranges_of_file, 1)]
    way = new_root, tree.confined
    tasks += [(files.copy_files, tree.root, root, batch, *way) for batch in batches(small, lambda item: item[1][2])]
    tasks += [(files.make_links, root, batch) for batch in batches(list(enumerate(links, len(wanted))))]
    pool.run(tasks, next_ranges)
    pool.run([(files.finish_file, tree.root, root, number, file, *way) for number, file in large])
    attributes = [(path, *mode_and_time) for path, mode_and_time in tree.folders.items() if path in made]
    pool.run([(files.set_folder_attributes, root, batch) for batch in batches(attributes)])


def _ranges(tree: Tree, root: bytes, number: int, file: File, new_root: bool) -> Iterator[Task]:
    for start in range(0, file[2], _RANGE):
        length = min(_RANGE, file[2] - start)
        yield files.copy_range, tree.root, root, number, file, start, length, new_root, tree.confined


def remove_names(pool: Pool, root: bytes, names: Iterable[bytes]) -> None:
    """Remove these paths below `root`. Paths that end with a slash are folders, and are removed only if empty."""
    names = list(names)
    pool.run([(files.remove_files, root, batch) for batch in batches([n for n in names if not n.endswith(b"/")])])
    for level in reversed(list(_levels(n[:-1] for n in names if n.endswith(b"/")))):
        pool.run([(files.remove_empty_folders, root, batch) for batch in batches(level)])


def remove_folder(pool: Pool, root: bytes) -> None:
    """Remove a folder with all its content, hidden files included. Do nothing if the folder does not exist.

    If there is a link in place of the folder, remove only the link: another user may have made it.
    """
    kind = pool.call(inspection.kind_of, root, False)
    if kind != "folder":
        pool.call(files.remove_files, os.path.dirname(root), [os.path.basename(root)] if kind else [])
        return
    names: list[bytes] = [b"/"]

    def add(folder: Folder) -> Iterator[Task]:
        names.extend(below + b"/" for below in folder[3])
        names.extend(folder[4])
        for below in folder[3]:
            yield inspection.scan_folder, root, below

    pool.run([(inspection.scan_folder, root, b"")], add)
    remove_names(pool, root, names)


def _levels(folders: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group folders by depth, the top level first. The folders of one level can be made at the same time."""
    by_depth: dict[int, list[bytes]] = {}
    for path in folders:
        by_depth.setdefault(path.count(b"/") + bool(path), []).append(path)
    for depth in sorted(by_depth):
        yield by_depth[depth]
