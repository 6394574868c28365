"""`paddle-launcher shard`: a data set into OUT_DIR/<i>/data, a share of the lines for each trainer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from launcher.base.files import shown
from launcher.base.log import TextHandler, shown_by
from launcher.data import mounts
from launcher.data.lock import Lock
from launcher.data.pool import Pool
from launcher.data.split import Split
from launcher.errors import Exit, Failure

_LINES = ("train.txt",)
_LOCK = ".paddle-launcher-shard.lock"


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command: its arguments, with OUT_DIR and SPLIT_COUNT of the environment standing in for what is not given."""
    given = _parse(arguments, environment)
    if not given.anywhere:
        refuse_what_goes_with_container(given.out, "KUBERNETES_SERVICE_HOST" in environment)
    with shown_by(TextHandler(_print)):
        shard(given.data, given.config, given.out, given.count, line_files=given.lines)
    return Exit.COMPLETE


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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Failure(Exit.USAGE, f"shard: {message}; see paddle-launcher shard --help")


def _parse(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    parser = _Parser(prog="paddle-launcher shard", description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the data set: every file of it goes to each")
    parser.add_argument("--config", metavar="FOLDER", help="the configuration: goes to OUT_DIR under its own name")
    parser.add_argument("--out", default=environment.get("OUT_DIR"), help="JOB_PATH/JOB_NAME of the job to come")
    parser.add_argument("--count", default=environment.get("SPLIT_COUNT"), metavar="N", help="how many trainers")
    parser.add_argument(
        "--lines",
        action="append",
        metavar="NAME",
        help="a file to split (default: train.txt), or a pattern; repeatable",
    )
    parser.add_argument("--anywhere", action="store_true", help="write even where the data ends with the container")
    given = parser.parse_args(arguments)
    problems = []
    if not given.out:
        problems.append("OUT_DIR (or --out): not set: expected the folder to write the shards to")
    if not (given.count or "").isdecimal() or int(given.count) < 1:
        problems.append(f"SPLIT_COUNT (or --count): {given.count!r}: expected the number of trainers, 1 or more")
    if problems:
        raise Failure(Exit.CONFIG, "\n".join(problems))
    given.count = int(given.count)
    return given


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
