"""`make chaos`: gangs to which much happens at once, round after round, until one of them breaks a promise.

python -m chaos --minutes 5             as long as that, each round with another seed
python -m chaos --rounds 1 --seed 42    the round of this seed again
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaos import counting, evidence, invariants, plan
from chaos.arena import Arena
from chaos.local import LocalArena
from chaos.rounds import Story, play


def main() -> int:
    given = _arguments()
    if os.geteuid() != 0:
        print("chaos: network namespaces, mounts and signals to all need root", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is frozen or mounted is undone
    struck: Counter[str] = Counter()
    rounds, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-data-") as data:
        for seed in _seeds(given):
            with _arena(given.on, Path(data)) as arena:
                story = play(arena, plan.make(seed, arena.kinds))
                violated = invariants.violated(story)
                print(_line(story), flush=True)
                if violated:
                    kept = evidence.keep(story, violated)
                    break
            rounds += 1
            struck.update(fault.kind for fault in story.effective)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{rounds} rounds held in {minutes:.1f} minutes: "
        + ", ".join(f"{n} x {kind}" for kind, n in struck.most_common())
    )
    if violated:
        _tell(story, violated, kept, given.on)
    return bool(violated)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Many faults at once, and the promises that must hold.")
    parser.add_argument("--rounds", type=int, help="how many (default: 10, or as many as --minutes takes)")
    parser.add_argument("--minutes", type=float, help="begin no round after so long")
    parser.add_argument("--seed", type=int, help="of the first round, each later one has the next (default: any)")
    parser.add_argument("--on", choices=("local", "pods"), default="local", help="this machine, or a cluster")
    return parser.parse_args()


def _seeds(given: argparse.Namespace) -> Iterator[int]:
    """As many as were asked for, one after another."""
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    rounds = given.rounds or (None if given.minutes else 10)
    end = time.monotonic() + 60 * (given.minutes or float("inf"))
    number = 0
    while (rounds is None or number < rounds) and time.monotonic() < end:
        yield seed + number
        number += 1


def _arena(on: str, data: Path) -> contextlib.AbstractContextManager[Arena]:
    if on == "pods":
        from chaos.pods import PodArena  # needs a cluster

        return PodArena(data)
    return LocalArena(data)


def _line(story: Story) -> str:
    codes = Counter(end.code for end in story.ends)
    shown = " ".join(f"{code}x{count}" if count > 1 else str(code) for code, count in sorted(codes.items()))
    how = "hung" if story.hung else "complete" if story.complete else "failed"
    done = "; ".join(map(str, story.done)) or "nothing"
    generations, passes = len(counting.claims(story)), len(counting.whole_passes(story))
    how = f"{how}, codes {shown}, {generations} generations, {passes} passes"
    return f"seed {story.plan.seed}: {story.plan}: {done}: {how}, {story.seconds:.0f} s"


def _tell(story: Story, violated: list[str], kept: Path, on: str) -> None:
    print(f"\nseed {story.plan.seed} violates:", file=sys.stderr)
    for one in violated:
        print(f"- {one}", file=sys.stderr)
    there = "" if on == "local" else f" --on {on}"
    print(f"evidence: {kept}\nagain: python -m chaos --rounds 1 --seed {story.plan.seed}{there}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
