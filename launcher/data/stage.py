"""Staging: each folder of the volume copied to its place in the container, whole or not at all.

A destination that is not there is made beside and renamed. One that is there (the work directory; a data folder that
came with the image or is a mount) gets our files over its own, each made beside and renamed, and keeps all others.
What an earlier start put there and the source has no more is removed; what it put there and is still the same, by
size and time, is used again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from launcher.base.files import shown
from launcher.data import creation, inspection, removal, space, tree
from launcher.data.creation import PART
from launcher.data.inspection import File, Link
from launcher.data.pool import Pool
from launcher.data.progress import Progress, files, names, size
from launcher.data.stage_record import StageRecord
from launcher.data.tree import Tree
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)


class _Copy:
    def __init__(self, source: str, destination: str, what: str, job: str, trainers: int | None) -> None:
        self.source = source
        self.destination = destination
        self.what = what
        self.job = job  # the job's folder, which both kinds of source are in
        self.trainers = trainers  # of a shard: how many there should be
        self.tree = Tree(os.fsencode(source))
        self.place = b""  # the destination without links, once it is known
        self.fresh = False
        self.files: list[File] = []
        self.links: list[Link] = []

    @property
    def part(self) -> bytes:
        """Where a destination that is not there is made."""
        return os.path.join(os.path.dirname(self.place), PART + os.path.basename(self.place))

    def idle(self) -> bool:
        """Whether all is there already."""
        return not (self.fresh or self.files or self.links)


class Stage:
    """All copies of one request, over one pool."""

    def __init__(self, request: Mapping[str, Any], pool: Pool) -> None:
        self._copies = [_Copy(**copy) for copy in request["copies"]]
        self._record_path = request["record"]
        self._pool = pool
        self._progress = Progress()

    def run(self) -> None:
        """Copy what is not there yet, or raise the Failure that says why not."""
        for copy in self._copies:
            self._look(copy)
        self._pool.call(creation.make_all_folders, os.fsencode(os.path.dirname(self._record_path)))
        record = StageRecord(self._pool, self._record_path)
        space.check(self._pool, [self._need(copy, record) for copy in self._copies])
        for copy in self._copies:
            self._put(copy, record)

    def clean(self) -> None:
        """After a failure: remove what is half made, so that it does not fill the disk."""
        for copy in self._copies:
            if copy.place:
                self._clean(copy)

    def _look(self, copy: _Copy) -> None:
        source = os.fsencode(copy.source)
        state = self._pool.call(inspection.exists, source)
        if state != "folder":
            raise self._missing(copy, "is not a folder" if state else "does not exist", source)
        self._progress.begin(f"{copy.what}: looking through {shown(source)}")
        self._pool.tick = lambda: self._progress.at(len(copy.tree.files))
        tree.walk(self._pool, copy.tree)
        if not copy.tree.files and not copy.tree.links:
            raise self._missing(copy, "is empty", os.fsencode(os.path.join(copy.job, "")))
        self._remark(copy)
        self._remark_unseen_shards(copy)
        copy.place = self._pool.call(inspection.real, os.fsencode(copy.destination))
        self._refuse_nested(copy)

    def _missing(self, copy: _Copy, state: str, below: bytes) -> Failure:
        above, found = self._pool.call(inspection.around, below)
        text = f"{copy.what}: {shown(copy.source)} {state}; {shown(above)} holds: {names(found) or 'nothing'}"
        return Failure(Exit.NO_INPUT, f"{text}: {_advice(copy, os.fsdecode(above), found)}")

    def _remark(self, copy: _Copy) -> None:
        for paths, words in (
            (copy.tree.special, "not copied, being neither files, folders nor links"),
            (copy.tree.dangling, "copied as links that lead nowhere"),
            (copy.tree.outside, "copied as links to folders outside of the source"),
        ):
            if paths:
                log.info(f"{copy.what}: {words}: {names(paths, 5)}")

    def _remark_unseen_shards(self, copy: _Copy) -> None:
        """More shards than trainers: fine for a quick try, but that a part of the data is not seen must be known."""
        unseen = os.path.join(copy.job, str(copy.trainers), "data")
        if copy.trainers is not None and self._pool.call(inspection.exists, os.fsencode(unseen)):
            log.warning(
                f"{shown(unseen)} is a shard that no trainer of this job sees: the data set was split for "
                f"more than CONF_PADDLE_GRADIENT_NUM={copy.trainers}"
            )

    def _refuse_nested(self, copy: _Copy) -> None:
        source = self._pool.call(inspection.real, os.fsencode(copy.source))
        below = os.path.relpath(source, copy.place).split(b"/")[0]
        onto_source = below != b".." and any(path.split(b"/")[0] == below for path in copy.tree.folders if path)
        if (copy.place + b"/").startswith(source + b"/") or onto_source:
            text = f"{copy.what}: {shown(copy.source)} would be copied into itself, to {shown(copy.destination)}"
            raise Failure(Exit.CONFIG, f"{text}: set LAUNCHER_WORKDIR to a folder outside of the job's folder")

    def _need(self, copy: _Copy, record: StageRecord) -> space.Need:
        """Decide what is to be done for a copy; gives the room that it takes."""
        there = self._pool.call(inspection.exists, copy.place)
        if there == "something else":
            raise Failure(Exit.CANNOT_WRITE, f"{shown(copy.destination)} is not a folder: remove it or rename it")
        copy.fresh = not there
        if not record.complete(copy.destination) and (copy.fresh or record.known(copy.destination)):
            self._clean(copy)
        if copy.fresh:
            copy.files, copy.links, replaced, freed = copy.tree.files, copy.tree.links, 0, 0
        else:
            ours = record.names(copy.destination) if record.complete(copy.destination) else set()
            copy.files, copy.links, replaced, freed = tree.compare(
                self._pool, copy.tree.files, copy.tree.links, copy.place, ours
            )
        inodes = len(copy.files) + len(copy.links) - replaced + (len(copy.tree.folders) if copy.fresh else 0)
        return space.Need(copy.what, copy.place, copy.files, inodes, freed)

    def _put(self, copy: _Copy, record: StageRecord) -> None:
        wanted, ours = copy.tree.names(), record.names(copy.destination)
        if copy.idle() and wanted == ours and record.complete(copy.destination):
            log.info(f"{copy.what}: {files(len(copy.tree.files))}, {size(copy.tree.size())}, all there already")
            return
        record.write(copy.destination, copy.source, ours | wanted, complete=False)
        tree.remove(self._pool, copy.place, ours - wanted)
        self._copy(copy)
        record.write(copy.destination, copy.source, wanted, complete=True)

    def _copy(self, copy: _Copy) -> None:
        total, before = sum(file[2] for file in copy.files), self._pool.copied()
        self._progress.begin(copy.what, total)
        self._pool.tick = lambda: self._progress.at(self._pool.copied() - before)
        if copy.fresh:
            self._pool.call(creation.make_all_folders, copy.part)
            tree.put(self._pool, copy.tree, copy.files, copy.links, copy.part, fresh=True)
            self._pool.call(creation.rename, copy.part, copy.place)
        else:
            tree.put(self._pool, copy.tree, copy.files, copy.links, copy.place, fresh=False)
        seconds = self._progress.seconds()
        text = f"{copy.what}: {files(len(copy.files))}, {size(total)} copied in {seconds:.1f} s"
        kept = len(copy.tree.files) - len(copy.files)
        rest = f"; {files(kept)} more there already" if kept else ""
        log.info(f"{text}, {size(total / max(seconds, 0.001))}/s{rest}")

    def _clean(self, copy: _Copy) -> None:
        tree.clear(self._pool, copy.part)
        self._pool.call(removal.remove_leftovers, copy.place, list(copy.tree.folders))


def _advice(copy: _Copy, above: str, found: list[bytes]) -> str:
    """What to do about a source that is missing or empty, from what was found in the nearest folder above it."""
    job = os.path.normpath(copy.job)
    if os.path.commonpath([job, above]) != job:
        return "check JOB_PATH and JOB_NAME, and that the volume is mounted there"
    if copy.trainers is None:
        return "check TRAIN_CONFIG_DIR"
    shards = sum(name.isdigit() for name in found) if os.path.normpath(above) == job else 0
    question = "was the data set split"
    if shards:
        question += f" for {shards} trainer{'' if shards == 1 else 's'}"
    return f"{question}? Run `paddle-launcher shard` with SPLIT_COUNT={copy.trainers}"
