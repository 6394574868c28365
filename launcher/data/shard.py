"""`paddle-launcher shard`: split a data set into OUT_DIR/<i>/data, one folder per trainer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from launcher.base.file_errors import printable
from launcher.base.log import TextHandler, shown_by
from launcher.data import mounts
from launcher.data.lock import Lock
from launcher.data.pool import Pool
from launcher.data.split import Splitter
from launcher.errors import Exit, Failure

_LINE_FILES = ("train.txt",)
_LOCK = ".paddle-launcher-shard.lock"


def command(
    data: str,
    config: str | None,
    out: str | None,
    count: str | None,
    *,
    line_files: Sequence[str] | None,
    in_kubernetes: bool | None,
    follow_links: bool,
) -> None:
    """Check the arguments, then split. If `in_kubernetes` is None, OUT_DIR may be any folder. Raises Failure."""
    problems = []
    if not out:
        problems.append("OUT_DIR (or --out): not set: expected the folder to write the shards to")
    if not (count or "").isdecimal() or int(count or 0) < 1:
        problems.append(f"SPLIT_COUNT (or --count): {count!r}: expected the number of trainers, 1 or more")
    if problems or out is None or count is None:
        raise Failure(Exit.CONFIG, "\n".join(problems))
    if in_kubernetes is not None:
        refuse_ephemeral_storage(out, in_kubernetes)
    with shown_by(TextHandler(_print)):
        shard(data, config, out, int(count), line_files=line_files, follow_links=follow_links)


def shard(
    data: str,
    config: str | None,
    out: str,
    count: int,
    *,
    line_files: Sequence[str] | None,
    follow_links: bool = False,
) -> None:
    """Split a data set for `count` trainers, and copy the configuration. An identical second call changes nothing."""
    data, out = os.path.realpath(data), os.path.realpath(out)
    if (out + "/").startswith(data + "/"):
        raise Failure(
            Exit.CONFIG, f"OUT_DIR={printable(out)} is inside of the data set {printable(data)}: choose another OUT_DIR"
        )
    with Pool() as pool, Lock(os.path.join(out, _LOCK)) as lock:
        splitter = Splitter(pool, out, lock.renew, follow_links=follow_links)
        splitter.run(data, config, count, line_files or _LINE_FILES)


def refuse_ephemeral_storage(out: str, in_kubernetes: bool) -> None:
    """Raise Failure if OUT_DIR would be lost with the pod. The usual cause: the volume is mounted at another path."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounted = mounts.parse(file.read())
    in_container = in_kubernetes or any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))
    storage = mounts.ephemeral_storage(mounted, os.path.realpath(out), in_container)
    if storage:
        volumes = ", ".join(mounts.describe_volumes(mounted)) or "no volume"
        text = (
            f"OUT_DIR={printable(out)} is on {storage}: the shards would be lost with the pod. Mounted here: {volumes}"
        )
        raise Failure(
            Exit.CONFIG, f"{text}. Choose a folder on a volume, or use --anywhere to write to {printable(out)} anyway"
        )


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
