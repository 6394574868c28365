"""The shards of an elastic job: M shards on the volume, made once, are dealt to the trainers that are there.

With another number of trainers, each shard still has exactly one trainer.
"""

from __future__ import annotations

import os

from launcher.base import file_errors
from launcher.base.file_errors import printable
from launcher.errors import Exit, Failure


def share(shards: int, trainers: int, trainer: int) -> range:
    """Return the shards of one trainer: neighbours, and for each trainer about as many.

    Raises ValueError if a trainer would get no shard.
    """
    if not 0 <= trainer < trainers <= shards:
        raise ValueError(f"trainer {trainer} of {trainers}, {shards} shards")
    return range(trainer * shards // trainers, (trainer + 1) * shards // trainers)


def count(job: str, trainers: int) -> int:
    """Return how many shards a job has: `0/data`, `1/data` and so on. Blocks while the volume blocks.

    Raises Failure if a shard is missing between others, or if there are fewer shards than trainers.
    """
    try:
        numbers = {int(name) for name in os.listdir(job) if name.isdigit() and str(int(name)) == name}
        found = {number for number in numbers if os.path.isdir(os.path.join(job, str(number), "data"))}
    except FileNotFoundError:
        found = set()
    except OSError as error:
        raise file_errors.cannot_read(job, error) from None
    again = f"run `paddle-launcher shard` with SPLIT_COUNT={max(trainers, len(found))}"
    if missing := set(range(max(found, default=-1) + 1)) - found:
        path = printable(os.path.join(job, str(min(missing)), "data"))
        raise Failure(
            Exit.NO_INPUT,
            f"{path} does not exist, but shard {max(found)} does: was it deleted or renamed? To make it again, {again}",
        )
    if len(found) < trainers:
        raise Failure(
            Exit.NO_INPUT,
            f"{printable(job)} has {len(found)} shards, but the job may have {trainers} trainers, and each trainer "
            f"needs one: {again}",
        )
    return len(found)
