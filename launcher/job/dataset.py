"""A data set as lines of numbers. One process writes the file from a reader. Each trainer reads its part."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from launcher.base.files import write_atomically

Number = int | float
Reader = Callable[[], Iterable[Iterable[object]]]


def dataset_from_reader(filename: str | os.PathLike[str], reader: Reader) -> None:
    """Write one line per sample of the reader, with the sample's values separated by commas.

    The file appears only when it is complete. Raises ValueError for a sample that `dist_reader` cannot read.
    """
    lines = (_line(number, sample) for number, sample in enumerate(reader()))
    write_atomically(os.fspath(filename), "".join(lines).encode())


def dist_reader(
    filename: str | os.PathLike[str], trainers: int, trainer_id: int
) -> Callable[[], Iterator[tuple[Number, ...]]]:
    """Return a reader of one trainer's share of the file. Each line belongs to exactly one share.

    The launcher sets TRAINERS and TRAINER_ID, the values for `trainers` and `trainer_id`, in each trainer.

    In an elastic job the file may also be in each shard of the data set. Then the share is all lines of the trainer's
    own shards (LAUNCHER_DATA_DIRS).
    """
    count, share = int(trainers), int(trainer_id)
    if not 0 <= share < count:
        raise ValueError(f"trainer_id: {trainer_id!r}: expected 0 to {count - 1} for {trainers} trainers")

    def samples() -> Iterator[tuple[Number, ...]]:
        if shards := _in_shards(os.fspath(filename)):
            for path in shards:
                yield from _samples(path, lambda number: True)
        else:
            yield from _samples(os.fspath(filename), lambda number: number % count == share)

    return samples


def _in_shards(path: str) -> list[str]:
    """Return the file in each shard of this trainer. Empty if the file is at its own path, or the job has no shards."""
    folders = [folder for folder in os.environ.get("LAUNCHER_DATA_DIRS", "").split(os.pathsep) if folder]
    if not folders or os.path.exists(path):
        return []
    inside = os.path.relpath(
        path, os.path.dirname(folders[0])
    )  # `data/x` in a job of fixed size, here `data/<shard>/x`
    name = path if inside.startswith(os.pardir) else inside
    found = [os.path.join(folder, name) for folder in folders]
    return found if any(map(os.path.exists, found)) else []


def _samples(path: str, is_wanted: Callable[[int], bool]) -> Iterator[tuple[Number, ...]]:
    """Yield the samples of the lines that are wanted by their numbers. The first line has number 1."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if is_wanted(number) and not line.isspace():
                yield tuple(_number(cell, f"{path}, line {number}") for cell in line.rstrip("\n").split(","))


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
