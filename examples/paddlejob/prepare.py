"""Make the data set, data.csv beside this program: points of a plane with noise, one per line."""

import random
from collections.abc import Iterator
from pathlib import Path

from launcher.job import dataset_from_reader

POINTS = 3000


def reader() -> Iterator[tuple[float, float, float]]:
    """Yield two coordinates, and the height that the model learns from them."""
    random.seed(1)
    for _ in range(POINTS):
        x, y = random.uniform(-1, 1), random.uniform(-1, 1)
        yield round(x, 6), round(y, 6), round(3 * x - 2 * y + 1 + random.gauss(0, 0.01), 6)


dataset_from_reader(Path(__file__).with_name("data.csv"), reader)
