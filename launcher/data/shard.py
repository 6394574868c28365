"""`paddle-launcher shard`: a data set into OUT_DIR/<i>/data, a share of the lines for each trainer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from launcher.base.files import shown
from launcher.base.log import TextHandler, shown_by
from launcher.data import mounts
from launcher.data.lock import Lock
from launcher.data.pool import Pool
from launcher.data.split import Split
from launcher.errors import Exit, Failure

_LINES = ("train.txt",)
_LOCK = ".paddle-launcher-shard.lock"


def command(
    data: str,
    config: str | None,
    out: str | None,
    count: str | None,
    *,
    line_files: Sequence[str] | None,
    in_kubernetes: bool | None,
) -> None:
    """Check what was given, and split. With None for `in_kubernetes` OUT_DIR may be anywhere. Raises Failure."""
    problems = []
    if not out:
        problems.append("OUT_DIR (or --out): not set: expected the folder to write the shards to")
    if not (count or "").isdecimal() or int(count or 0) < 1:
        problems.append(f"SPLIT_COUNT (or --count): {count!r}: expected the number of trainers, 1 or more")
    if problems or out is None or count is None:
        raise Failure(Exit.CONFIG, "\n".join(problems))
    if in_kubernetes is not None:
        refuse_what_goes_with_container(out, in_kubernetes)
    with shown_by(TextHandler(_print)):
        shard(data, config, out, int(count), line_files=line_files)


def shard(data: str, config: str | None, out: str, count: int, *, line_files: Sequence[str] | None) -> None:
    """Split a data set for `count` trainers, and put the configuration beside. Running it again changes nothing."""
    data, out = os.path.realpath(data), os.path.realpath(out)
    if (out + "/").startswith(data + "/"):
        raise Failure(Exit.CONFIG, f"OUT_DIR={shown(out)} is inside of the data set {shown(data)}: choose another")
    with Pool() as pool, Lock(os.path.join(out, _LOCK)) as lock:
        Split(pool, out, lock.beat).run(data, config, count, line_files or _LINES)


def refuse_what_goes_with_container(out: str, in_kubernetes: bool) -> None:
    """An OUT_DIR that ends with its container is nearly always a slip: the volume is mounted somewhere else."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = mounts.parse(file.read())
    in_container = in_kubernetes or any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))
    where = mounts.goes_with_container(found, os.path.realpath(out), in_container)
    if where:
        volumes = ", ".join(mounts.volumes(found)) or "no volume"
        text = f"OUT_DIR={shown(out)} is on {where}: all of it would be gone with the pod. Mounted here: {volumes}"
        raise Failure(
            Exit.CONFIG, f"{text}. Choose a folder on a volume; --anywhere writes to {shown(out)} all the same"
        )


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
