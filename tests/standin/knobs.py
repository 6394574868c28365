"""The stand-in's own settings: environment variables that begin with STANDIN_, all listed in README.md."""

from __future__ import annotations

import os
import random


def seconds(name: str, default: float) -> float:
    return float(os.environ.get("STANDIN_" + name + "_SECONDS", default))


def on_peer_death() -> str | None:
    """`collapse` or `hang` when that is settled, else None: the dice decide."""
    choice = os.environ.get("STANDIN_ON_PEER_DEATH")
    if choice not in (None, "collapse", "hang"):
        raise SystemExit("STANDIN_ON_PEER_DEATH is collapse or hang, not " + repr(choice))
    return choice


def is_closed(gate: str) -> bool:
    """Whether a test keeps this gate closed, by a file of its name in the folder STANDIN_GATES."""
    folder = os.environ.get("STANDIN_GATES")
    return bool(folder) and os.path.exists(os.path.join(str(folder), gate))


def deaf() -> bool:
    return os.environ.get("STANDIN_DEAF") == "1"


def exit_at() -> tuple[int, int] | None:
    """(batch, exit code) for a trainer that ends by itself in its first pass, else None."""
    text = os.environ.get("STANDIN_EXIT_AT")
    if not text:
        return None
    batch, code = text.split(":")
    return int(batch), int(code)


def takes_memory_at() -> tuple[int, int, int] | None:
    """(trainer, batch, MiB) for a trainer that takes so much memory in its first pass, else None."""
    text = os.environ.get("STANDIN_TAKES_MEMORY_AT")
    if not text:
        return None
    trainer, batch, size = text.split(":")
    return int(trainer), int(batch), int(size)


def crashes_at_start() -> bool:
    """Whether this pserver is one of those that die at start: by odds, or by a file that holds how many still do."""
    counter = os.environ.get("STANDIN_CRASHES_LEFT")
    if counter:
        with open(counter) as file:
            left = int(file.read())
        if left > 0:
            with open(counter, "w") as file:
                file.write(str(left - 1))
            return True
    return random.random() < float(os.environ.get("STANDIN_CRASH_ODDS", 0))


def inherited_ignored(number: int) -> bool:
    """Whether the process was started with this signal ignored, as seen before Python changed it."""
    mask = int(os.environ.get("STANDIN_INHERITED_IGNORED", "0"), 16)
    return bool(mask >> (number - 1) & 1)
