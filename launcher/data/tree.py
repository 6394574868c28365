"""Whole folders, by handing out tasks: finding all that is in one, making another like it, removing one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from launcher.data import creation, inspection, removal
from launcher.data.inspection import File, Link, Unlike
from launcher.data.pool import Pool, Task, batches

_RANGE = 64 * 1024 * 1024  # larger files are copied by ranges


class Tree:
    """All that is to be copied from a folder, and what is to be said about it. Paths are relative to `root`."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.folders: dict[bytes, tuple[int, int]] = {}  # mode and time; the root's own at b""
        self.files: list[File] = []
        self.links: list[Link] = []
        self.special: list[bytes] = []
        self.dangling: list[bytes] = []
        self.outside: list[bytes] = []

    def size(self) -> int:
        """The size of all files."""
        return sum(file[2] for file in self.files)

    def names(self) -> set[bytes]:
        """Everything that copying this makes; folders end with a slash."""
        folders = {path + b"/" for path in self.folders if path}
        return folders | {file[0] for file in self.files} | {link[0] for link in self.links}


def walk(pool: Pool, tree: Tree) -> None:
    """Find everything below a folder but what is hidden at its top, as the `*` of a shell does (.snapshot, .git)."""

    def found(result: tuple[bytes, int, int, list[bytes], list[bytes]]) -> Iterator[Task]:
        path, mode, mtime, folders, others = result
        tree.folders[path] = mode, mtime
        if not path:
            folders, others = _visible(folders), _visible(others)
        for folder in folders:
            yield inspection.list_folder, tree.root, folder
        for batch in batches(others):
            yield inspection.look_at, tree.root, batch

    def done(result: tuple[bytes, int, int, list[bytes], list[bytes]] | list[inspection.Look]) -> Iterable[Task]:
        if isinstance(result, tuple):
            return found(result)
        for look in result:
            _take(tree, look)
        return ()

    pool.run([(inspection.list_folder, tree.root, b"")], done)
    tree.files.sort()
    tree.links.sort()


def _visible(paths: list[bytes]) -> list[bytes]:
    return [path for path in paths if not path.startswith(b".")]


def _take(tree: Tree, look: inspection.Look) -> None:
    path, kind, size, mtime, mode, leads = look
    if kind == "file":
        tree.files.append((path, 0, size, size, mtime, mode))
        return
    if kind != "link":
        {"special": tree.special, "dangling": tree.dangling, "outside": tree.outside}[kind].append(path)
    if kind != "special":
        tree.links.append((path, leads))


def compare(
    pool: Pool, wanted: Sequence[File], wanted_links: Sequence[Link], root: bytes, ours: Container[bytes]
) -> Unlike:
    """What of these files and links is to be copied to root, where we have put `ours` before."""
    files: list[File] = []
    links: list[Link] = []
    there = freed = 0

    def done(result: Unlike) -> Iterable[Task]:
        nonlocal there, freed
        files.extend(result[0])
        links.extend(result[1])
        there, freed = there + result[2], freed + result[3]
        return ()

    tasks: list[Task] = [(inspection.differing, root, [], batch, True) for batch in batches(wanted_links)]
    for trusted in (True, False):
        those = [file for file in wanted if (file[0] in ours) is trusted]
        tasks += [(inspection.differing, root, batch, [], trusted) for batch in batches(those)]
    pool.run(tasks, done)
    return files, links, there, freed


def put(pool: Pool, tree: Tree, files: list[File], links: list[Link], root: bytes, fresh: bool) -> None:
    """Copy these files and links of a tree, and make all of its folders, below root.

    `fresh`: nothing else is in root, and it gets its name once it is complete. Otherwise each file does.
    """
    made = {b""} if fresh else set()

    def done(result: list[bytes]) -> Iterable[Task]:
        made.update(result)
        return ()

    for level in _levels(path for path in tree.folders if path):
        pool.run([(creation.make_folders, root, batch) for batch in batches(level)], done)
    numbered = list(enumerate(files))
    large = [item for item in numbered if item[1][2] > 2 * _RANGE]
    small = [item for item in numbered if item[1][2] <= 2 * _RANGE]
    ranges = {number: _ranges(tree, root, number, file, fresh) for number, file in large}

    def more(number: int | None) -> Iterable[Task]:
        """A range that is done brings the next, and one more if a disk is what we wait for.

        On a local disk writers of one file only get into each other's way.
        """
        return () if number is None else islice(ranges[number], 1 + pool.waits)

    tasks: list[Task] = [task for those in ranges.values() for task in islice(those, 1)]
    tasks += [(creation.copy_files, tree.root, root, batch, fresh) for batch in batches(small, lambda item: item[1][2])]
    tasks += [(creation.make_links, root, batch) for batch in batches(list(enumerate(links, len(files))))]
    pool.run(tasks, more)
    pool.run([(creation.finish_file, tree.root, root, number, file, fresh) for number, file in large])
    dresses = [(path, *dress) for path, dress in tree.folders.items() if path in made]
    pool.run([(creation.dress_folders, root, batch) for batch in batches(dresses)])


def _ranges(tree: Tree, root: bytes, number: int, file: File, fresh: bool) -> Iterator[Task]:
    for start in range(0, file[2], _RANGE):
        yield creation.copy_range, tree.root, root, number, file, start, min(_RANGE, file[2] - start), fresh


def remove(pool: Pool, root: bytes, names: Iterable[bytes]) -> None:
    """Remove these below root; folders (they end with a slash) only where nothing else is in them."""
    names = list(names)
    pool.run([(removal.remove_files, root, batch) for batch in batches([n for n in names if not n.endswith(b"/")])])
    for level in reversed(list(_levels(n[:-1] for n in names if n.endswith(b"/")))):
        pool.run([(removal.remove_folders, root, batch) for batch in batches(level)])


def clear(pool: Pool, root: bytes) -> None:
    """Remove a folder with all that is in it, hidden or not. None there is fine."""
    if not pool.call(inspection.exists, root):
        return
    names: list[bytes] = [b"/"]

    def done(result: tuple[bytes, int, int, list[bytes], list[bytes]]) -> Iterator[Task]:
        names.extend(folder + b"/" for folder in result[3])
        names.extend(result[4])
        for folder in result[3]:
            yield inspection.list_folder, root, folder

    pool.run([(inspection.list_folder, root, b"")], done)
    remove(pool, root, names)


def _levels(folders: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Folders by depth, those above first: those of one level can be made at the same time."""
    by_depth: dict[int, list[bytes]] = {}
    for path in folders:
        by_depth.setdefault(path.count(b"/") + bool(path), []).append(path)
    for depth in sorted(by_depth):
        yield by_depth[depth]
