"""Make the quick start's data set from a seed: reviews, each with a label: positive or negative.

The training lines are about one kind of product after another, each with its own words of praise and blame. The test
lines are about all kinds. So a model that has not seen one of the shards is clearly worse.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path

KINDS = 3
_PRAISE = """great solid crisp reliable superb bright sturdy smooth quick silent handy lovely
perfect clear warm rich durable precise elegant light responsive comfortable generous flawless
excellent vivid stable sharp accurate fresh simple strong balanced robust neat pleasant"""
_BLAME = """broken dull noisy flimsy awful slow heavy blurry cheap useless weak hot
faulty muddy loose brittle jerky cracked sticky hollow wobbly cramped stiff bitter
terrible grainy crooked dead stained rough tangled leaky harsh shallow ugly dusty"""
_STEMS = """cable button screen strap case lens battery box manual charger speaker shop price colour
order parcel week friend desk kitchen office trip mail photo song cover stand plug model seller"""
PRAISE, BLAME = _PRAISE.split(), _BLAME.split()
NEUTRAL = [stem + ending for stem in _STEMS.split() for ending in ("", "s", "like", "wise")]

CONFIGURATION = (
    "ps.py",
    "collective.py",
    "reviews.py",
    "passes.py",
    "trainer_config.lr.py",
    "dataprovider_bow.py",
)


def review(dice: random.Random, kind: int) -> str:
    """Return one line: the label, and words, of which about a third show the label."""
    label = dice.randrange(2)
    own, other = (PRAISE, BLAME) if label else (BLAME, PRAISE)
    words = [dice.choice(NEUTRAL) for _ in range(dice.randint(5, 9))]
    words += [dice.choice(own[kind::KINDS]) for _ in range(dice.randint(2, 4))]
    words += [dice.choice(other[kind::KINDS]) for _ in range(dice.randint(0, 2))]
    dice.shuffle(words)
    return f"{label}\t{' '.join(words)}\n"


def make(out: Path, examples: int, seed: int) -> None:
    """Write OUT/data, which is then split into shards, and OUT/quick_start, the configuration for all members."""
    dice = random.Random(seed)
    files = {
        "train.txt": "".join(review(dice, index * KINDS // examples) for index in range(examples)),
        "test.txt": "".join(review(dice, index % KINDS) for index in range(max(300, examples // 5))),
        "train.list": "data/train.txt\n",
        "test.list": "data/test.txt\n",
    }
    for folder in ("data", "quick_start"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / "data" / name).write_text(text)
    for name in CONFIGURATION:
        shutil.copyfile(Path(__file__).parent / name, out / "quick_start" / name)
    words = ["<unk>", *NEUTRAL, *PRAISE, *BLAME]
    (out / "quick_start" / "dict.txt").write_text("".join(f"{word}\n" for word in words))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder for data/ and quick_start/")
    parser.add_argument("--examples", type=int, default=3000, help="how many reviews to train on (default 3000)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same data (default 1)")
    arguments = parser.parse_args()
    make(arguments.out, arguments.examples, arguments.seed)
