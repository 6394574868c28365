"""The stand-in's own settings: the environment variables that begin with STANDIN_. README.md lists all of them."""

from __future__ import annotations

import os
import random


def seconds(name: str, default: float) -> float:
    return float(os.environ.get("STANDIN_" + name + "_SECONDS", default))


def on_peer_death() -> str | None:
    """Return `collapse` or `hang`, or None if chance decides."""
    choice = os.environ.get("STANDIN_ON_PEER_DEATH")
    if choice not in (None, "collapse", "hang"):
        raise SystemExit("STANDIN_ON_PEER_DEATH is collapse or hang, not " + repr(choice))
    return choice


def is_closed(gate: str) -> bool:
    """Return whether a test keeps this gate closed: a file with its name is in the folder STANDIN_GATES."""
    folder = os.environ.get("STANDIN_GATES")
    return bool(folder) and os.path.exists(os.path.join(str(folder), gate))


def deaf() -> bool:
    return os.environ.get("STANDIN_DEAF") == "1"


def exit_at() -> tuple[int, int] | None:
    """Return (batch, exit code) if the trainer must end in its first pass, else None."""
    text = os.environ.get("STANDIN_EXIT_AT")
    if not text:
        return None
    batch, code = text.split(":")
    return int(batch), int(code)


def takes_memory_at() -> tuple[int, int, int] | None:
    """Return (trainer, batch, MiB) if a trainer must allocate this much memory in its first pass, else None."""
    text = os.environ.get("STANDIN_TAKES_MEMORY_AT")
    if not text:
        return None
    trainer, batch, size = text.split(":")
    return int(trainer), int(batch), int(size)


def crashes_at_start() -> bool:
    """Return whether this pserver must crash at its start: by chance, or by a file with the number of crashes left."""
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
    """Return whether the process was started with this signal ignored, before Python changed the signal handling."""
    mask = int(os.environ.get("STANDIN_INHERITED_IGNORED", "0"), 16)
    return bool(mask >> (number - 1) & 1)
