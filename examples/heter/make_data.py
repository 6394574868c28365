"""Make a data set: ten words and a click per line, in the format of Paddle's data sets. Needs only Python.

Each word counts for or against a click, and one in fifty clicks is by chance.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

WORDS, WORDS_PER_LINE, BY_CHANCE = 1000, 10, 0.02


def lines(count: int, seed: int) -> list[str]:
    """Return lines such as `10 7 42 ... 1 0`: the number of words, the words, the number of labels, the label."""
    rng = random.Random(seed)
    weights = [rng.gauss(0, 1) for _ in range(WORDS)]
    made = []
    for _ in range(count):
        words = [rng.randrange(WORDS) for _ in range(WORDS_PER_LINE)]
        clicked = sum(weights[word] for word in words) > 0
        if rng.random() < BY_CHANCE:
            clicked = not clicked
        made.append(f"{WORDS_PER_LINE} {' '.join(map(str, words))} 1 {int(clicked)}\n")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="gets data/train.txt")
    parser.add_argument("--examples", type=int, default=4000, help="lines (default 4000)")
    parser.add_argument("--seed", type=int, default=1, help="decides all of it (default 1)")
    given = parser.parse_args()
    data = given.folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "train.txt").write_text("".join(lines(given.examples, given.seed)))


if __name__ == "__main__":
    main()
