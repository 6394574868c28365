"""Data for trainers as lines of numbers: written once by a reader, read by each trainer in its own share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from launcher.base.files import write_atomically

Number = int | float
Reader = Callable[[], Iterable[Iterable[object]]]


def dataset_from_reader(filename: str | os.PathLike[str], reader: Reader) -> None:
    """Write a line for each sample that the reader gives, its values separated by commas.

    Nobody ever finds half of the file there: it appears when it is complete. What `dist_reader` could not read again
    is a ValueError.
    """
    lines = (_line(number, sample) for number, sample in enumerate(reader()))
    write_atomically(os.fspath(filename), "".join(lines).encode())


def dist_reader(
    filename: str | os.PathLike[str], trainers: int, trainer_id: int
) -> Callable[[], Iterator[tuple[Number, ...]]]:
    """A reader of one trainer's share of such a file: every line is in the share of exactly one of them.

    `trainers` and `trainer_id` are what the launcher tells each trainer in TRAINERS and TRAINER_ID.
    """
    count, own = int(trainers), int(trainer_id)
    if not 0 <= own < count:
        raise ValueError(f"trainer_id: {trainer_id!r}: expected 0 to {count - 1}, since there are {trainers} trainers")

    def samples() -> Iterator[tuple[Number, ...]]:
        with open(filename, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if number % count == own and not line.isspace():
                    cells = line.rstrip("\n").split(",")
                    yield tuple(_number(cell, f"{os.fspath(filename)}, line {number}") for cell in cells)

    return samples


def _line(number: int, sample: Iterable[object]) -> str:
    cells = [str(value) for value in sample]
    for cell in cells:
        _number(cell, f"sample {number} of the reader")
    if not cells:
        raise ValueError(f"sample {number} of the reader is empty: expected numbers")
    return ",".join(cells) + "\n"


def _number(cell: str, where: str) -> Number:
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{where}: {cell!r}: expected a number") from None
