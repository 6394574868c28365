"""A data set split: a folder of files for each trainer, with its own share of the lines of some of them.

Everything new is made beside first and renamed at the end, so a trainer sees an old folder or a new one, whole. Each
folder that this makes has a hidden mark in it; folders without one belong to somebody else and are never replaced.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from launcher.base.files import make_folder, shown
from launcher.data import creation, inspection, lines, notes, space, tree
from launcher.data.creation import PART
from launcher.data.inspection import File
from launcher.data.pool import Pool
from launcher.data.progress import Progress, files, names, size
from launcher.data.tree import Tree
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

MARK = ".paddle-launcher-shard.json"


@dataclass
class _Target:
    """One folder to make: all of `tree` but with these files."""

    what: str
    place: str
    tree: Tree
    files: list[File]

    def beside(self, word: str) -> bytes:
        """A hidden name next to it."""
        folder, name = os.path.split(os.fsencode(self.place))
        return os.path.join(folder, PART + word.encode() + b"-" + name)

    def mark(self) -> bytes:
        """What the mark says: it changes with everything that this is made from."""
        digest = hashlib.sha256(repr((self.files, self.tree.links, self.tree.folders)).encode()).hexdigest()
        return json.dumps({"version": 1, "what": self.what, "of": digest}).encode()


class Split:
    """One run of the command, once its arguments are known to be good."""

    def __init__(self, pool: Pool, out: str, beat: Callable[[], None]) -> None:
        self._pool = pool
        self._out = out
        self._beat = beat
        self._progress = Progress()

    def run(self, data: str, config: str | None, count: int, patterns: Sequence[str]) -> None:
        """Make the shards and the configuration folder, and remove shards that are too many."""
        targets = self._shards(self._walk("data set", data), count, patterns)
        if config is not None:
            targets += self._configuration(config)
        surplus = self._surplus(count)
        self._refuse_others([target.place for target in targets] + surplus)
        todo = [target for target in targets if not self._is_there(target)]
        for target in targets:
            self._clean(target)
        space.check(self._pool, [self._need(target) for target in todo])
        self._make(todo)
        for target in todo:
            self._swap(target)
        for place in surplus:
            self._remove(place)
        make_folder(os.path.join(self._out, "output"))
        self._tell(targets, todo)

    def _walk(self, what: str, folder: str) -> Tree:
        root = os.fsencode(folder)
        state = self._pool.call(inspection.exists, root)
        if state != "folder":
            above, found = self._pool.call(inspection.around, root)
            is_not = "is not a folder" if state else "does not exist"
            holds = f"{shown(above)} holds: {names(found) or 'nothing'}"
            raise Failure(Exit.NO_INPUT, f"{what}: {shown(root)} {is_not}; {holds}")
        found_tree = Tree(root)
        self._progress.begin(f"{what}: looking through {shown(root)}")
        self._pool.tick = lambda: self._tick(len(found_tree.files))
        tree.walk(self._pool, found_tree)
        if not found_tree.files:
            raise Failure(Exit.NO_INPUT, f"{what}: {shown(root)} has no files in it")
        for path in found_tree.special:
            log.info(f"{what}: not copied, being neither file, folder nor link: {shown(path)}")
        return found_tree

    def _shards(self, data: Tree, count: int, patterns: Sequence[str]) -> list[_Target]:
        bounds = {file[0]: self._bounds(data, file, count) for file in _matching(data, patterns)}
        targets = []
        for rank in range(count):
            own = [_share(file, bounds[file[0]], rank) if file[0] in bounds else file for file in data.files]
            place = os.path.join(self._out, str(rank), "data")
            targets.append(_Target(f"shard of rank {rank} of {count}", place, data, own))
        return targets

    def _bounds(self, data: Tree, file: File, count: int) -> list[int]:
        path = os.path.join(data.root, file[0])
        bounds = self._pool.call(lines.line_bounds, path, count)
        if len(bounds) <= count or bounds[-1] != file[2]:
            found = f"{shown(path)} has fewer lines than SPLIT_COUNT={count}"
            raise Failure(Exit.NO_INPUT, f"{found}: a trainer would get none; split for fewer trainers")
        return bounds

    def _configuration(self, config: str) -> list[_Target]:
        name = os.path.basename(os.path.normpath(config))
        if name.isdigit() or name == "output":
            raise Failure(Exit.CONFIG, f"--config {shown(config)}: {name} is the name of another folder of the job")
        place = os.path.join(self._out, name)
        if os.path.realpath(place) == os.path.realpath(config):
            return []  # it is where it should be
        found = self._walk("configuration", config)
        return [_Target("configuration", place, found, found.files)]

    def _surplus(self, count: int) -> list[str]:
        """Shards of an earlier split for more trainers."""
        numbers = (int(name) for name in self._pool.call(notes.list_folder, self._out) if name.isdigit())
        places = (os.path.join(self._out, str(number), "data") for number in sorted(numbers) if number >= count)
        return [place for place in places if self._pool.call(inspection.exists, os.fsencode(place))]

    def _refuse_others(self, places: Iterable[str]) -> None:
        others = [place for place in places if self._is_foreign(place)]
        if others:
            text = f"not made by this command, and in its way: {', '.join(map(shown, others))}"
            raise Failure(Exit.CONFIG, f"{text}: remove or rename them, or choose another OUT_DIR")

    def _is_foreign(self, place: str) -> bool:
        state = self._pool.call(inspection.exists, os.fsencode(place))
        if state != "folder":
            return bool(state)
        found = self._pool.call(notes.list_folder, place)
        return bool(found) and MARK not in found

    def _is_there(self, target: _Target) -> bool:
        """Whether an earlier run has made just this, and nobody has changed it since."""
        if self._pool.call(notes.read_file, os.path.join(target.place, MARK)) != target.mark():
            return False
        ours = {file[0] for file in target.files}
        unlike = tree.compare(self._pool, target.files, target.tree.links, os.fsencode(target.place), ours)
        return not (unlike[0] or unlike[1])

    def _need(self, target: _Target) -> space.Need:
        entries = len(target.files) + len(target.tree.links) + len(target.tree.folders)
        return space.Need(target.what, os.fsencode(target.place), target.files, entries)

    def _make(self, todo: list[_Target]) -> None:
        before = self._pool.copied()
        total = sum(file[2] for target in todo for file in target.files)
        self._progress.begin(f"making {len(todo)} folders", total)
        self._pool.tick = lambda: self._tick(self._pool.copied() - before)
        for target in todo:
            part = target.beside("new")
            make_folder(os.path.dirname(target.place))
            self._pool.call(creation.make_all_folders, part)
            tree.put(self._pool, target.tree, target.files, target.tree.links, part, fresh=True)
            self._pool.call(notes.write_file, os.path.join(os.fsdecode(part), MARK), target.mark())
        if todo:
            self._pool.call(creation.sync, os.fsencode(self._out))

    def _swap(self, target: _Target) -> None:
        place = os.fsencode(target.place)
        if self._pool.call(inspection.exists, place):
            self._pool.call(creation.rename, place, target.beside("old"))
        self._pool.call(creation.rename, target.beside("new"), place)
        tree.clear(self._pool, target.beside("old"))

    def _clean(self, target: _Target) -> None:
        """Remove what a run left behind that died."""
        tree.clear(self._pool, target.beside("new"))
        tree.clear(self._pool, target.beside("old"))

    def _remove(self, place: str) -> None:
        target = _Target("", place, Tree(b""), [])
        self._clean(target)
        self._pool.call(creation.rename, os.fsencode(place), target.beside("old"))
        tree.clear(self._pool, target.beside("old"))
        tree.remove(self._pool, os.fsencode(os.path.dirname(place)), [b"/"])
        log.info(f"removed {shown(place)}: it is from an earlier split for more trainers")

    def _tell(self, targets: list[_Target], todo: list[_Target]) -> None:
        for target in targets:
            done = "made" if target in todo else "there already"
            total = size(sum(file[2] for file in target.files))
            log.info(f"{target.what}: {files(len(target.files))}, {total}, {done}: {shown(target.place)}")

    def _tick(self, done: int) -> None:
        self._beat()
        self._progress.at(done)


def _matching(data: Tree, patterns: Sequence[str]) -> list[File]:
    """The files to split by lines: each pattern, a path in the data set or with wildcards, has to match one."""
    found: dict[bytes, File] = {}
    for pattern in patterns:
        matching = [file for file in data.files if fnmatchcase(os.fsdecode(file[0]), pattern)]
        if not matching:
            holds = f"{shown(data.root)} holds: {names(file[0] for file in data.files)}"
            raise Failure(
                Exit.NO_INPUT, f"no {pattern} to split into lines; {holds}: name the right files with --lines"
            )
        found.update((file[0], file) for file in matching)
    return list(found.values())


def _share(file: File, bounds: list[int], rank: int) -> File:
    path, _, _, whole, mtime, mode = file
    return path, bounds[rank], bounds[rank + 1] - bounds[rank], whole, mtime, mode
