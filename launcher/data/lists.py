"""The lists of several shards as one. A list names one data file per line, as Paddle v0 reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from launcher.data import files, inspection

_ENDING = b".list"
_OF_TRAINING = b"train.list"
_LIMIT = 1 << 28  # bytes of one list


def merge(data: bytes, workdir: bytes, shards: Sequence[bytes]) -> None:
    """Write the lists of several shards as one list each, to the trainer's data folder `data`.

    The lists of a shard name files as if the shard were in `data` itself; they are in `data/<shard>`. train.list gets
    the files of all shards. Any other list, such as test.list, is alike in all shards: it gets those of the first one.
    """
    lists: dict[bytes, list[bytes]] = {}
    for shard in shards:
        for name in sorted(os.listdir(shard)):
            if name.endswith(_ENDING) and (name == _OF_TRAINING or name not in lists or shard == shards[0]):
                text = inspection.read_head(os.path.join(shard, name), _LIMIT)
                lists.setdefault(name, []).extend(_moved(text, data, workdir, shard))
    for name, lines in lists.items():
        files.write_file(os.fsdecode(os.path.join(data, name)), b"".join(line + b"\n" for line in lines))


def _moved(text: bytes, data: bytes, workdir: bytes, shard: bytes) -> list[bytes]:
    """Return the lines of a list. The name of a file in `data` is replaced by its name in `shard`."""
    lines = []
    for line in filter(None, map(bytes.strip, text.split(b"\n"))):
        path = os.path.normpath(os.path.join(workdir, line))
        inside = os.path.relpath(path, data)
        if inside.split(b"/")[0] != b"..":
            line = (
                os.path.join(shard, inside) if os.path.isabs(line) else os.path.relpath(shard + b"/" + inside, workdir)
            )
        lines.append(line)
    return lines
