"""A small data set like the quick start's: reviews with a label, and the configuration that trains on them.

The training lines speak of one kind of product after another, each with its own words of praise and blame, while the
test lines speak of all: a model that never saw one of the shards is plainly worse.
"""

from __future__ import annotations

import argparse
import random
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

CONFIG = """\
# Logistic regression over a bag of words.
from paddle.trainer_config_helpers import *

word_dict = dict()
with open(get_config_arg('dict_file', str, './data/dict.txt')) as f:
    for i, line in enumerate(f):
        word_dict[line.split()[0]] = i

define_py_data_sources2(
    train_list='data/train.list',
    test_list='data/test.list',
    module='dataprovider_bow',
    obj='process',
    args={'dictionary': word_dict})

settings(
    batch_size=get_config_arg('batch_size', int, 50),
    learning_rate=get_config_arg('learning_rate', float, 0.01))

data = data_layer(name='word', size=len(word_dict))
output = fc_layer(input=data, size=2, act=SoftmaxActivation())
label = data_layer(name='label', size=2)
outputs(classification_cost(input=output, label=label))
"""

PROVIDER = """\
from paddle.trainer.PyDataProvider2 import *

UNKNOWN_WORD = 0


def initializer(settings, dictionary, **kwargs):
    settings.word_dict = dictionary
    settings.input_types = [sparse_binary_vector(len(dictionary)), integer_value(2)]


@provider(init_hook=initializer, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name) as f:
        for line in f:
            label, review = line.rstrip('\\n').split('\\t')
            words = set(settings.word_dict.get(w, UNKNOWN_WORD) for w in review.split())
            yield sorted(words), int(label)
"""


def review(dice: random.Random, kind: int) -> str:
    """One line: the label, and words of which about a third tell it."""
    label = dice.randrange(2)
    own, other = (PRAISE, BLAME) if label else (BLAME, PRAISE)
    words = [dice.choice(NEUTRAL) for _ in range(dice.randint(5, 9))]
    words += [dice.choice(own[kind::KINDS]) for _ in range(dice.randint(2, 4))]
    words += [dice.choice(other[kind::KINDS]) for _ in range(dice.randint(0, 2))]
    dice.shuffle(words)
    return f"{label}\t{' '.join(words)}\n"


def make(out: Path, lines: int, seed: int) -> None:
    """Write OUT/data and OUT/quick_start."""
    dice = random.Random(seed)
    files = {
        "data/dict.txt": "".join(f"{word}\n" for word in ["<unk>", *NEUTRAL, *PRAISE, *BLAME]),
        "data/train.txt": "".join(review(dice, index * KINDS // lines) for index in range(lines)),
        "data/test.txt": "".join(review(dice, index % KINDS) for index in range(max(300, lines // 5))),
        "data/train.list": "data/train.txt\n",
        "data/test.list": "data/test.txt\n",
        "quick_start/trainer_config.lr.py": CONFIG,
        "quick_start/dataprovider_bow.py": PROVIDER,
    }
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that gets data/ and quick_start/")
    parser.add_argument("--lines", type=int, default=3000, help="lines of training data (default 3000)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same data (default 1)")
    arguments = parser.parse_args()
    make(arguments.out, arguments.lines, arguments.seed)
