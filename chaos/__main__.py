"""`make chaos`: run gangs with many faults at once, round after round, until an invariant is violated.

python -m chaos --minutes 5             run rounds for 5 minutes, with a different seed per round
python -m chaos --rounds 1 --seed 42    repeat the round of this seed, if the same kinds of faults are possible here
python -m chaos ... --kinds 'cut,kill trainer'    draw faults of these kinds only; a failed round prints its kinds
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaos import counting, evidence, invariants, kinds, plan
from chaos.arena import Arena
from chaos.local import LocalArena
from chaos.plan import Plan
from chaos.rounds import Story, play


def main() -> int:
    given = _arguments()
    if os.geteuid() != 0:
        print("chaos: must run as root, for network namespaces, mounts and signals", file=sys.stderr)
        return 1
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # exit by an exception, so that all faults and mounts are undone
    arena_of = _arena_of(given.on)
    for line in kinds.explained(arena_of.left_out):
        print(line, flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-data-") as data:
        return _play_all(given, arena_of, Path(data))


def _play_all(given: argparse.Namespace, arena_of: type[Arena], data: Path) -> int:
    """Play all rounds. Return 0, 1 if an invariant was violated, or 2 if a seed cannot be played here."""
    struck: Counter[str] = Counter()
    rounds, began = 0, time.monotonic()
    failed: tuple[Story, list[str], Path] | None = None
    for seed in _seeds(given):
        drawn = plan.make(seed, given.kinds or set(plan.KINDS) - set(arena_of.left_out))
        if missing := kinds.impossible(drawn, arena_of.left_out):
            print(f"seed {seed} cannot be played here: {'; '.join(missing)}", file=sys.stderr)
            return 2
        with arena_of(data) as arena:
            story = play(arena, drawn)
            print(_line(story), flush=True)
            if violated := invariants.violated(story):
                failed = story, violated, evidence.keep(story, violated, _command(drawn, given.on))
                break
        rounds += 1
        struck.update(fault.kind for fault in story.effective)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{rounds} rounds without a violation in {minutes:.1f} minutes: "
        + ", ".join(f"{n} x {kind}" for kind, n in struck.most_common())
    )
    if failed:
        _report(*failed, _command(failed[0].plan, given.on))
    return bool(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Inject many faults at once, and check the invariants.")
    parser.add_argument("--rounds", type=int, help="the number of rounds (default: 10, or no limit with --minutes)")
    parser.add_argument("--minutes", type=float, help="begin no round after this number of minutes")
    parser.add_argument(
        "--seed", type=int, help="the seed of the first round, which grows by 1 per round (default: random)"
    )
    parser.add_argument(
        "--kinds",
        type=kinds.named,
        help="the kinds of faults to draw, separated by commas (default: all that are possible)",
    )
    parser.add_argument(
        "--on",
        choices=("local", "pods"),
        default="local",
        help="run the gangs on this machine, or as pods on a cluster",
    )
    return parser.parse_args()


def _seeds(given: argparse.Namespace) -> Iterator[int]:
    """Yield consecutive seeds until the number of rounds or the end of the time is reached."""
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    rounds = given.rounds or (None if given.minutes else 10)
    end = time.monotonic() + 60 * (given.minutes or float("inf"))
    number = 0
    while (rounds is None or number < rounds) and time.monotonic() < end:
        yield seed + number
        number += 1


def _arena_of(on: str) -> type[Arena]:
    if on == "pods":
        from chaos.pods import PodArena  # needs a cluster

        return PodArena
    return LocalArena


def _line(story: Story) -> str:
    codes = Counter(end.code for end in story.ends)
    shown = " ".join(f"{code}x{count}" if count > 1 else str(code) for code, count in sorted(codes.items()))
    how = "hung" if story.hung else "complete" if story.complete else "failed"
    done = "; ".join(map(str, story.done)) or "no fault"
    generations, passes = len(counting.claims(story)), len(counting.whole_passes(story))
    how = f"{how}, codes {shown}, {generations} generations, {passes} passes"
    return f"seed {story.plan.seed}: {story.plan}: {done}: {how}, {story.seconds:.0f} s"


def _report(story: Story, violated: list[str], kept: Path, again: str) -> None:
    print(f"\nseed {story.plan.seed} violates:", file=sys.stderr)
    for violation in violated:
        print(f"- {violation}", file=sys.stderr)
    print(f"evidence: {kept}\nrepeat with: {again}", file=sys.stderr)


def _command(drawn: Plan, on: str) -> str:
    """Return the command that repeats this round, even on a host on which other kinds of faults are possible."""
    where = "" if on == "local" else f" --on {on}"
    return f"python -m chaos --rounds 1 --seed {drawn.seed} --kinds {shlex.quote(','.join(drawn.kinds))}{where}"


if __name__ == "__main__":
    sys.exit(main())
