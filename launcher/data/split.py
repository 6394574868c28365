"""Split a data set: one folder per trainer, with a share of the lines of some files and a copy of all other files.

Each folder is made under a temporary name and renamed at the end, so a trainer sees the old folder or the new one.
Each folder contains a hidden file, its mark. A folder without a mark was made by another program and is never replaced.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from launcher.base.file_errors import printable
from launcher.base.files import make_folder
from launcher.data import files, inspection, line_bounds, space, tree
from launcher.data.files import PART
from launcher.data.inspection import File, Link
from launcher.data.pool import Pool, Task, batches
from launcher.data.progress import Progress, format_files, format_names, format_size
from launcher.data.tree import Tree
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

MARK = ".paddle-launcher-shard.json"


@dataclass
class _Target:
    """A folder to make at `path`: with the folders and links of `tree`, and with `files`."""

    what: str
    path: str
    tree: Tree
    files: list[File]

    def temporary_path(self, word: str) -> bytes:
        """Return a hidden path beside this folder."""
        folder, name = os.path.split(os.fsencode(self.path))
        return os.path.join(folder, PART + word.encode() + b"-" + name)

    def mark(self) -> bytes:
        """Return the content of the mark. The mark depends on all files, links and folders that are copied."""
        digest = hashlib.sha256(repr((self.files, self.tree.links, self.tree.folders)).encode()).hexdigest()
        return json.dumps({"version": 1, "what": self.what, "of": digest}).encode()


class Splitter:
    """One run of the command with checked arguments. Calls `renew_lock` about every second.

    follow_links: copy the targets of links that lead out of the data set or the configuration. Otherwise refuse such
        links: the readers of the shards may have no permission to read the targets.
    """

    def __init__(self, pool: Pool, out: str, renew_lock: Callable[[], None], *, follow_links: bool) -> None:
        self._pool = pool
        self._out = out
        self._renew_lock = renew_lock
        self._follow_links = follow_links
        self._progress = Progress()

    def run(self, data: str, config: str | None, count: int, patterns: Sequence[str]) -> None:
        """Make the shards and the configuration folder. Remove surplus shards, see `_surplus`."""
        targets = self._shards(self._scan("data set", data), count, patterns)
        if config is not None:
            targets += self._configuration(config)
        surplus = self._surplus(count)
        self._refuse_foreign([target.path for target in targets] + surplus)
        outdated = [target for target in targets if not self._is_current(target)]
        for target in targets:
            self._remove_leftovers(target)
        space.check(self._pool, [self._need(target) for target in outdated])
        self._make(outdated)
        for target in outdated:
            self._publish(target)
        for path in surplus:
            self._remove(path)
        make_folder(os.path.join(self._out, "output"))
        self._log_results(targets, outdated)

    def _scan(self, what: str, folder: str) -> Tree:
        root = os.fsencode(folder)
        kind = self._pool.call(inspection.kind_of, root)
        if kind != "folder":
            above, found = self._pool.call(inspection.nearest_folder, root)
            problem = "is not a folder" if kind else "does not exist"
            content = f"{printable(above)} contains: {format_names(found) or 'nothing'}"
            raise Failure(Exit.NO_INPUT, f"{what}: {printable(root)} {problem}; {content}")
        if not self._follow_links:
            root = self._pool.call(inspection.resolve, root)
        scanned = Tree(root, confined=not self._follow_links)
        self._progress.begin(f"{what}: scanning {printable(root)}")
        self._pool.on_tick = lambda: self._tick(len(scanned.files))
        tree.scan(self._pool, scanned)
        scanned.restrict(self._pool.call(inspection.modes_within, os.fsencode(self._out)))
        if not scanned.files:
            raise Failure(Exit.NO_INPUT, f"{what}: {printable(root)} contains no files")
        if scanned.confined:
            self._refuse_links_out(what, scanned)
        for path in scanned.special:
            log.info(f"{what}: not copied, because it is not a file, folder or link: {printable(path)}")
        return scanned

    def _refuse_links_out(self, what: str, scanned: Tree) -> None:
        out: list[Link] = []

        def add(result: list[Link]) -> Iterable[Task]:
            out.extend(result)
            return ()

        links = [*scanned.followed, *(path for path, _ in scanned.links)]
        self._pool.run([(inspection.links_out, scanned.root, batch) for batch in batches(links)], add)
        if out:
            path, target = min(out)
            more = f", as do {len(out) - 1} more links" if len(out) > 1 else ""
            raise Failure(
                Exit.CONFIG,
                f"{what}: {printable(path)} is a link to {printable(target)}, outside of {printable(scanned.root)}"
                f"{more}: replace the link by a copy, or pass --follow-links if you trust all links here",
            )

    def _shards(self, data: Tree, count: int, patterns: Sequence[str]) -> list[_Target]:
        bounds = {file[0]: self._line_bounds(data, file, count) for file in _matching(data, patterns)}
        targets = []
        for rank in range(count):
            parts = [_part(file, bounds[file[0]], rank) if file[0] in bounds else file for file in data.files]
            path = os.path.join(self._out, str(rank), "data")
            targets.append(_Target(f"shard of rank {rank} of {count}", path, data, parts))
        return targets

    def _line_bounds(self, data: Tree, file: File, count: int) -> list[int]:
        path = os.path.join(data.root, file[0])
        bounds = self._pool.call(line_bounds.find_line_bounds, path, count)
        if len(bounds) <= count or bounds[-1] != file[2]:
            problem = f"{printable(path)} has fewer lines than SPLIT_COUNT={count}"
            raise Failure(Exit.NO_INPUT, f"{problem}: some trainers would get no lines; split for fewer trainers")
        return bounds

    def _configuration(self, config: str) -> list[_Target]:
        name = os.path.basename(os.path.normpath(config))
        if name.isdigit() or name == "output":
            raise Failure(
                Exit.CONFIG,
                f"--config {printable(config)}: the job itself uses the folder name {name!r}: "
                "rename the configuration folder",
            )
        path = os.path.join(self._out, name)
        if os.path.realpath(path) == os.path.realpath(config):
            return []  # the configuration is already in its place
        scanned = self._scan("configuration", config)
        return [_Target("configuration", path, scanned, scanned.files)]

    def _surplus(self, count: int) -> list[str]:
        """Return the shards that are left from an earlier split, which was for more trainers."""
        numbers = (int(name) for name in self._pool.call(inspection.list_names, self._out) if name.isdigit())
        paths = (os.path.join(self._out, str(number), "data") for number in sorted(numbers) if number >= count)
        return [path for path in paths if self._pool.call(inspection.kind_of, os.fsencode(path))]

    def _refuse_foreign(self, paths: Iterable[str]) -> None:
        foreign = [path for path in paths if self._is_foreign(path)]
        if foreign:
            text = f"{', '.join(map(printable, foreign))}: not made by `paddle-launcher shard`"
            these = "this folder" if len(foreign) == 1 else "these folders"
            raise Failure(Exit.CONFIG, f"{text}: remove or rename {these}, or choose another OUT_DIR")

    def _is_foreign(self, path: str) -> bool:
        kind = self._pool.call(inspection.kind_of, os.fsencode(path))
        if kind != "folder":
            return bool(kind)
        names = self._pool.call(inspection.list_names, path)
        return bool(names) and MARK not in names

    def _is_current(self, target: _Target) -> bool:
        """Return whether an earlier run has made exactly this folder, and the folder has not changed."""
        if self._pool.call(inspection.read_file, os.path.join(target.path, MARK)) != target.mark():
            return False
        ours = {file[0] for file in target.files}
        different = tree.compare(self._pool, target.files, target.tree.links, os.fsencode(target.path), ours)
        return not (different[0] or different[1])

    def _need(self, target: _Target) -> space.Need:
        inodes = len(target.files) + len(target.tree.links) + len(target.tree.folders)
        return space.Need(target.what, os.fsencode(target.path), target.files, inodes)

    def _make(self, targets: list[_Target]) -> None:
        before = self._pool.copied()
        total = sum(file[2] for target in targets for file in target.files)
        self._progress.begin(f"making {len(targets)} folders", total)
        self._pool.on_tick = lambda: self._tick(self._pool.copied() - before)
        for target in targets:
            new = target.temporary_path("new")
            make_folder(os.path.dirname(target.path))
            self._pool.call(files.make_with_parents, new)
            tree.copy(self._pool, target.tree, target.files, target.tree.links, new, new_root=True)
            self._pool.call(files.write_file, os.path.join(os.fsdecode(new), MARK), target.mark())
        if targets:
            self._pool.call(files.sync, os.fsencode(self._out))

    def _publish(self, target: _Target) -> None:
        """Replace the old folder with the new one."""
        path = os.fsencode(target.path)
        if self._pool.call(inspection.kind_of, path):
            self._pool.call(files.rename, path, target.temporary_path("old"))
        self._pool.call(files.rename, target.temporary_path("new"), path)
        tree.remove_folder(self._pool, target.temporary_path("old"))

    def _remove_leftovers(self, target: _Target) -> None:
        """Remove the temporary folders of a run that was killed."""
        tree.remove_folder(self._pool, target.temporary_path("new"))
        tree.remove_folder(self._pool, target.temporary_path("old"))

    def _remove(self, path: str) -> None:
        target = _Target("", path, Tree(b""), [])
        self._remove_leftovers(target)
        self._pool.call(files.rename, os.fsencode(path), target.temporary_path("old"))
        tree.remove_folder(self._pool, target.temporary_path("old"))
        tree.remove_names(self._pool, os.fsencode(os.path.dirname(path)), [b"/"])
        log.info(f"removed {printable(path)}, a shard of an earlier split that was for more trainers")

    def _log_results(self, targets: list[_Target], made: list[_Target]) -> None:
        for target in targets:
            result = "made" if target in made else "exists already"
            total = format_size(sum(file[2] for file in target.files))
            log.info(f"{target.what}: {format_files(len(target.files))}, {total}, {result}: {printable(target.path)}")

    def _tick(self, done: int) -> None:
        self._renew_lock()
        self._progress.update(done)


def _matching(data: Tree, patterns: Sequence[str]) -> list[File]:
    """Return the files to split by lines. A pattern is a path, maybe with wildcards. Raises Failure if none matches."""
    matching: dict[bytes, File] = {}
    for pattern in patterns:
        of_pattern = [file for file in data.files if fnmatchcase(os.fsdecode(file[0]), pattern)]
        if not of_pattern:
            content = f"{printable(data.root)} contains: {format_names(file[0] for file in data.files)}"
            raise Failure(
                Exit.NO_INPUT,
                f"no file matches {pattern}; {content}; use --lines to name the files to split",
            )
        matching.update((file[0], file) for file in of_pattern)
    return list(matching.values())


def _part(file: File, bounds: list[int], rank: int) -> File:
    path, _, _, size, mtime, mode = file
    return path, bounds[rank], bounds[rank + 1] - bounds[rank], size, mtime, mode
