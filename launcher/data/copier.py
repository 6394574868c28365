"""Copy folders of the volume to their destinations. Runs in the child `stage_child`.

If a destination does not exist, its source is copied to a temporary folder, which is then renamed. A destination may
exist: the work directory, a mount, or a data folder of the image. Then each file is copied to a temporary file, which
is renamed. A file that an earlier start has copied is removed if the source no longer has this file. The file is reused
if its size and time have not changed. All other files are kept, unless the source has a file with the same path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from launcher.base.file_errors import printable
from launcher.data import files, inspection, lists, space, tree
from launcher.data.files import PART
from launcher.data.inspection import File, Link
from launcher.data.pool import Pool
from launcher.data.progress import Progress, format_files, format_names, format_size
from launcher.data.stage_record import StageRecord
from launcher.data.tree import Tree
from launcher.errors import Exit, Failure

log = logging.getLogger(__name__)

_LIST = b"train.list"  # the data files of a shard, one per line
_LIST_SIZE = 1 << 20
_BATCH = 100
_MOST_SHARDS = 10_000  # that are counted: an automounter may have a folder of every name


class _PlannedCopy:
    """A `Copy` of the request, with the files and links that must be copied."""

    def __init__(
        self,
        source: str,
        destination: str,
        what: str,
        job: str,
        trainers: int | None,
        allow_unused: bool,
        data: str | None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.what = what
        self.job = job
        self.trainers = trainers
        self.allow_unused = allow_unused
        self.data = data
        self.tree = Tree(os.fsencode(source))
        self.path = b""  # the destination with all links resolved; set after the check of the source
        self.is_new = False  # whether the destination does not exist yet
        self.files: list[File] = []
        self.links: list[Link] = []

    @property
    def temporary_folder(self) -> bytes:
        return os.path.join(os.path.dirname(self.path), PART + os.path.basename(self.path))

    def has_nothing_to_copy(self) -> bool:
        return not (self.is_new or self.files or self.links)


class Copier:
    """Make all copies of one request."""

    def __init__(self, request: Mapping[str, Any], pool: Pool) -> None:
        self._copies = [_PlannedCopy(**copy) for copy in request["copies"]]
        self._record_path = request["record"]
        self._pool = pool
        self._progress = Progress()

    def run(self) -> None:
        """Copy all files and links that are missing or have changed. Raises Failure."""
        for copy in self._copies:
            self._check_source(copy)
        self._pool.call(files.make_with_parents, os.fsencode(os.path.dirname(self._record_path)))
        record = StageRecord(self._pool, self._record_path)
        space.check(self._pool, [self._plan(copy, record) for copy in self._copies])
        self._remove_shards_of_others(record)
        for copy in self._copies:
            self._update(copy, record)
        self._merge_lists()

    def clean(self) -> None:
        """Remove incomplete copies after a failure, so that they do not fill the disk."""
        for copy in self._copies:
            if copy.path:
                self._clean(copy)

    def _check_source(self, copy: _PlannedCopy) -> None:
        source = os.fsencode(copy.source)
        kind = self._pool.call(inspection.kind_of, source)
        if kind != "folder":
            raise self._missing(copy, "is not a folder" if kind else "does not exist", source)
        self._progress.begin(f"{copy.what}: scanning {printable(source)}")
        self._pool.on_tick = lambda: self._progress.update(len(copy.tree.files))
        tree.scan(self._pool, copy.tree)
        if not copy.tree.files and not copy.tree.links:
            raise self._missing(copy, "is empty", os.fsencode(os.path.join(copy.job, "")))
        self._refuse_without_data(copy)
        self._log_special_entries(copy)
        self._refuse_unused_shards(copy)
        copy.path = self._pool.call(inspection.resolve, os.fsencode(copy.destination))
        self._refuse_nested(copy)

    def _missing(self, copy: _PlannedCopy, problem: str, path: bytes) -> Failure:
        above, found = self._pool.call(inspection.nearest_folder, path)
        content = f"{printable(above)} contains: {format_names(found) or 'nothing'}"
        advice = _advice(copy, os.fsdecode(above), found)
        return Failure(Exit.NO_INPUT, f"{copy.what}: {printable(copy.source)} {problem}; {content}: {advice}")

    def _refuse_without_data(self, copy: _PlannedCopy) -> None:
        """Raise Failure if a shard has no samples: a trainer without samples hangs, and all other trainers wait for it.

        A file `train.list` names the files that are read, relative to the work directory. Without this file, the
        launcher cannot know what a program reads: then a shard is refused only if no file in it has a byte.
        """
        if copy.trainers is None:
            return
        empty: list[bytes] = []
        if any(file[0] == _LIST for file in copy.tree.files):
            text = self._pool.call(inspection.read_head, os.path.join(copy.tree.root, _LIST), _LIST_SIZE)
            names = [name for line in text.split(b"\n") if (name := line.strip())]
            empty = ([] if self._any_has_bytes(copy, names) else names) if names else [_LIST]
        elif not any(file[3] for file in copy.tree.files) and not copy.tree.links:
            empty = [file[0] for file in copy.tree.files]
        if empty:
            has = "has" if len(empty) == 1 else "have"
            problem = f"{format_names(empty, 3)} {has} 0 bytes, in {printable(copy.source)}"
            advice = f"split the data set again: {_shard_command(copy.trainers)}"
            raise Failure(Exit.NO_INPUT, f"{copy.what} has no samples: {problem}: {advice}")

    def _any_has_bytes(self, copy: _PlannedCopy, names: list[bytes]) -> bool:
        """Return whether a data file of the list has a byte. A name that is no file may mean anything: True."""
        workdir, destination = self._workdir, os.fsencode(copy.data or copy.destination)
        paths = [os.path.normpath(os.path.join(workdir, name)) for name in names]
        inside = {os.path.relpath(path, destination): path for path in paths}
        sizes = {inside[file[0]]: file[3] for file in copy.tree.files if file[0] in inside}
        if any(sizes.values()):
            return True
        elsewhere = [path for path in paths if path not in sizes]
        batches = (elsewhere[at : at + _BATCH] for at in range(0, len(elsewhere), _BATCH))
        return any(any(self._pool.call(inspection.sizes_of, batch)) for batch in batches)

    def _log_special_entries(self, copy: _PlannedCopy) -> None:
        for paths, text in (
            (copy.tree.special, "not copied, because they are not files, folders or links"),
            (copy.tree.dangling, "copied as links, but their targets do not exist"),
            (copy.tree.outside, "copied as links to folders outside of the source"),
        ):
            if paths:
                log.info(f"{copy.what}: {text}: {format_names(paths, 5)}")

    def _refuse_unused_shards(self, copy: _PlannedCopy) -> None:
        """Raise Failure if there are more shards than trainers: the job would train only on a part of the data.

        Shards have the numbers from 0 on, without a gap. So a folder such as `2016` is no shard.
        """
        trainers = copy.trainers
        if trainers is None:
            return
        shards, found = trainers, _BATCH
        while found == _BATCH and shards < _MOST_SHARDS:
            found = self._pool.call(inspection.count_shards, os.fsencode(copy.job), shards, _BATCH)
            shards += found
        if shards == trainers:
            return
        unused = [printable(os.path.join(copy.job, str(number), "data")) for number in (trainers, shards - 1)]
        problem = (
            f"{shards}{' or more' if found == _BATCH else ''} shards for {trainers} "
            f"trainer{'' if trainers == 1 else 's'}: no trainer of this job reads "
            f"{' to '.join(sorted(set(unused), key=unused.index))}"
        )
        if copy.allow_unused:
            log.warning(f"{problem} (LAUNCHER_ALLOW_UNUSED_SHARDS)")
            return
        raise Failure(
            Exit.NO_INPUT,
            f"{problem}: run {shards} trainers (CONF_PADDLE_GRADIENT_NUM, times LAUNCHER_TRAINERS_PER_NODE), or split "
            f"the data set again: {_shard_command(trainers)}; to train on a part of the data, set "
            "LAUNCHER_ALLOW_UNUSED_SHARDS=1",
        )

    def _refuse_nested(self, copy: _PlannedCopy) -> None:
        source = self._pool.call(inspection.resolve, os.fsencode(copy.source))
        first = os.path.relpath(source, copy.path).split(b"/")[0]
        onto_source = first != b".." and any(path.split(b"/")[0] == first for path in copy.tree.folders if path)
        if (copy.path + b"/").startswith(source + b"/") or onto_source:
            text = (
                f"{copy.what}: {printable(copy.source)} would be copied into itself, to {printable(copy.destination)}"
            )
            raise Failure(Exit.CONFIG, f"{text}: set LAUNCHER_WORKDIR to a folder outside of the job's folder")

    def _plan(self, copy: _PlannedCopy, record: StageRecord) -> space.Need:
        """Determine which files and links must be copied. Return the space that they need."""
        kind = self._pool.call(inspection.kind_of, copy.path)
        if kind == "something else":
            raise Failure(Exit.CANNOT_WRITE, f"{printable(copy.destination)} is not a folder: remove it or rename it")
        copy.is_new = not kind
        is_complete = record.is_complete(copy.destination)
        if not is_complete and (copy.is_new or record.is_known(copy.destination)):
            self._clean(copy)
        if copy.is_new:
            copy.files, copy.links, replaced, freed = copy.tree.files, copy.tree.links, 0, 0
        else:
            ours = record.names(copy.destination) if is_complete else set()
            copy.files, copy.links, replaced, freed = tree.compare(
                self._pool, copy.tree.files, copy.tree.links, copy.path, ours
            )
        inodes = len(copy.files) + len(copy.links) - replaced + (len(copy.tree.folders) if copy.is_new else 0)
        return space.Need(copy.what, copy.path, copy.files, inodes, freed)

    def _update(self, copy: _PlannedCopy, record: StageRecord) -> None:
        """Make a destination equal to its source, and update the record."""
        wanted, ours = copy.tree.names(), record.names(copy.destination)
        if copy.has_nothing_to_copy() and wanted == ours and record.is_complete(copy.destination):
            total = f"{format_files(len(copy.tree.files))}, {format_size(copy.tree.size())}"
            log.info(f"{copy.what}: {total}: all files are already in the destination; nothing to copy")
            return
        record.write(copy.destination, copy.source, ours | wanted, complete=False)
        tree.remove_names(self._pool, copy.path, ours - wanted)
        self._copy(copy)
        record.write(copy.destination, copy.source, wanted, complete=True)

    def _copy(self, copy: _PlannedCopy) -> None:
        total, before = sum(file[2] for file in copy.files), self._pool.copied()
        self._progress.begin(copy.what, total)
        self._pool.on_tick = lambda: self._progress.update(self._pool.copied() - before)
        if copy.is_new:
            self._pool.call(files.make_with_parents, copy.temporary_folder)
            tree.copy(self._pool, copy.tree, copy.files, copy.links, copy.temporary_folder, new_root=True)
            self._pool.call(files.rename, copy.temporary_folder, copy.path)
        else:
            tree.copy(self._pool, copy.tree, copy.files, copy.links, copy.path, new_root=False)
        seconds = self._progress.seconds()
        text = f"{copy.what}: {format_files(len(copy.files))}, {format_size(total)} copied in {seconds:.1f} s"
        kept = len(copy.tree.files) - len(copy.files)
        rest = f"; not copied, because already in the destination: {format_files(kept)}" if kept else ""
        log.info(f"{text}, {format_size(total / max(seconds, 0.001))}/s{rest}")

    def _remove_shards_of_others(self, record: StageRecord) -> None:
        """Remove the shards that earlier starts have copied, and that other trainers have now."""
        folders, wanted = {copy.data for copy in self._copies}, {copy.destination for copy in self._copies}
        for known in record.destinations():
            if known not in wanted and os.path.dirname(known) in folders:
                log.info(f"shard {os.path.basename(known)} belongs to another trainer now: removing it here")
                tree.remove_folder(self._pool, os.fsencode(known))
                record.forget(known)

    def _merge_lists(self) -> None:
        shards: dict[str, list[bytes]] = {}
        for copy in self._copies:
            if copy.data is not None:
                shards.setdefault(copy.data, []).append(os.fsencode(copy.destination))
        for data, destinations in shards.items():
            self._pool.call(lists.merge, os.fsencode(data), self._workdir, destinations)

    @property
    def _workdir(self) -> bytes:
        return os.path.dirname(os.fsencode(self._record_path))

    def _clean(self, copy: _PlannedCopy) -> None:
        tree.remove_folder(self._pool, copy.temporary_folder)
        self._pool.call(files.remove_leftovers, copy.path, list(copy.tree.folders))


def _advice(copy: _PlannedCopy, above: str, found: list[bytes]) -> str:
    """Return advice for a missing or empty source.

    above: the nearest parent folder of the source that exists
    found: the names in the folder `above`
    """
    job = os.path.normpath(copy.job)
    if os.path.commonpath([job, above]) != job:
        return "check JOB_PATH and JOB_NAME, and check that the volume is mounted at JOB_PATH"
    if copy.trainers is None:
        return "check TRAIN_CONFIG_DIR"
    shards = sorted(int(name) for name in found if name.isdigit()) if os.path.normpath(above) == job else []
    missing = os.path.relpath(copy.source, job).split("/")[0]
    split = _shard_command(copy.trainers)
    if shards and missing.isdigit() and shards[-1] > int(missing):
        return f"shard {shards[-1]} exists, so was the folder {missing} deleted or renamed? {split} makes it again"
    question = "was the data set split"
    if shards:
        question += f" for {len(shards)} trainer{'' if len(shards) == 1 else 's'}"
    return f"{question}? Run {split}"


def _shard_command(trainers: int) -> str:
    command = f"`paddle-launcher shard --data DATA --out JOB --count {trainers}`"
    return f"{command} (DATA: the data set, JOB: the job's folder; in a data Job: SPLIT_COUNT={trainers})"
