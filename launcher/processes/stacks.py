"""Get the Python stacks of processes that registered a signal handler at their start. Signal no other process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from launcher.processes.proc import handles_signal

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stacks_on_demand")
_MEMORY = re.compile(r"/memfd:launcher-stacks-(\d+) \(deleted\)")
_ANSWER_WITHIN = 1.0
_QUIET = 0.05  # seconds without output after which a dump counts as complete
_POLL = 0.005
_MAX_BYTES = 256 * 1024


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which each Python process registers the signal handler at its start."""
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, (_FOLDER, env.get("PYTHONPATH"))))}


def dump(pid: int) -> str:
    """Return the stacks of all threads of a Python process, or why there are none.

    Blocks for 1 s at most, unless the kernel blocks reads of /proc.
    """
    try:
        registration = _registration(pid)
        if registration is None:
            return "none: this process has not registered for stack dumps (docs/faults.md)"
        memory, number = registration
        if is_stopped(pid):
            return "none: a signal or a debugger has stopped this process"
        with open(memory, "rb", buffering=0) as file:
            return _dump(pid, number, file.fileno())
    except OSError as error:
        return f"none: {error.strerror}"


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped the process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in b"Tt"


def _registration(pid: int) -> tuple[str, int] | None:
    """Return the memory file and the signal, or None if the process has no handler: the signal would kill it."""
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        try:
            match = _MEMORY.fullmatch(os.readlink(f"{folder}/{fd}"))
        except OSError:
            continue  # the file was closed meanwhile
        if match and handles_signal(pid, int(match.group(1))):
            return f"{folder}/{fd}", int(match.group(1))
    return None


def _dump(pid: int, number: int, memory: int) -> str:
    """Send the signal, and return what the process writes to its memory file.

    The caller must call this for one process at a time: a forked process shares the file with its parent.
    """
    before = size = os.fstat(memory).st_size
    os.kill(pid, number)
    deadline = time.monotonic() + _ANSWER_WITHIN
    changed = time.monotonic()
    while time.monotonic() < deadline and (size == before or time.monotonic() - changed < _QUIET):
        time.sleep(_POLL)
        now = os.fstat(memory).st_size
        if now != size:
            size, changed = now, time.monotonic()
    if size == before:
        return f"none: no answer within {_ANSWER_WITHIN:g} s: this process may be blocked in the kernel"
    return os.pread(memory, min(size - before, _MAX_BYTES), before).decode(errors="replace").strip()
