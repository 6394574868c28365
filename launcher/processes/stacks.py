"""Get the Python stacks of processes that registered a signal handler at their start. Signal no other process."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping

from launcher.processes.proc import blocks_signal, handles_signal

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stacks_on_demand")
_MEMORY = re.compile(r"/memfd:launcher-stacks-50 \(deleted\)")
_ALL, _MAIN = 50, 51  # as in stacks_on_demand/sitecustomize.py
_ANSWER_WITHIN = 1.0
_QUIET = 0.05  # seconds without output after which a dump counts as complete
_POLL = 0.005
_BLOCKED_WITHIN = 0.1  # seconds
_MAX_BYTES = 256 * 1024
_DUMPING = threading.Lock()  # two dumps of one process would mix


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which each Python process registers the signal handler at its start."""
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, (_FOLDER, env.get("PYTHONPATH"))))}


def dump(pid: int, *, all_threads: bool = False) -> str:
    """Return the stack of the main thread of a Python process, or of all threads, or why there is none.

    all_threads: only for a job that hangs. If threads run meanwhile, Python may crash.
    Blocks for 1 s at most, unless the kernel blocks reads of /proc.
    """
    try:
        memory = _memory_file(pid)
        if memory is None:
            return "none: this process has not registered for stack dumps (docs/faults.md)"
        with _DUMPING, open(memory, "r+b", buffering=0) as file:
            return _why_not(pid, number := _ALL if all_threads else _MAIN) or _dump(pid, number, file.fileno())
    except OSError as error:
        return f"none: {error.strerror}"


def _why_not(pid: int, number: int) -> str:
    """Return why the signal must not be sent now, or ""."""
    if not handles_signal(pid, number):
        return "none: this process has not registered for stack dumps (docs/faults.md)"
    if blocks_signal(pid, number):
        return "none: this process blocks signals, for example because it is starting another program"
    state = _state(pid)
    if state in "Tt":
        return "none: a signal or a debugger has stopped this process"
    return "none: this process is blocked in the kernel" if state == "D" else ""


def _state(pid: int) -> str:
    """Return the state of a process, as in /proc. If it is blocked in the kernel (D), wait a moment for its end."""
    deadline = time.monotonic() + _BLOCKED_WITHIN
    while True:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0].decode()
        if state != "D" or time.monotonic() > deadline:
            return state
        time.sleep(_POLL)


def _memory_file(pid: int) -> str | None:
    """Return the path of the file to which the process writes its stacks, or None if there is no such file."""
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        try:
            match = _MEMORY.fullmatch(os.readlink(f"{folder}/{fd}"))
        except OSError:
            continue  # the file was closed meanwhile
        if match:
            return f"{folder}/{fd}"
    return None


def _dump(pid: int, number: int, memory: int) -> str:
    """Send the signal, and return what the process writes to its memory file.

    The caller must call this for one process at a time: a forked process shares the file with its parent.
    """
    os.ftruncate(memory, 0)  # earlier dumps would use the memory of the pod
    size = 0
    os.kill(pid, number)
    deadline = time.monotonic() + _ANSWER_WITHIN
    changed = time.monotonic()
    while time.monotonic() < deadline and (not size or time.monotonic() - changed < _QUIET):
        time.sleep(_POLL)
        now = os.fstat(memory).st_size
        if now != size:
            size, changed = now, time.monotonic()
    if not size:
        return f"none: no answer within {_ANSWER_WITHIN:g} s: this process may be blocked in the kernel"
    start = os.lseek(memory, 0, os.SEEK_DATA)  # the process writes after its earlier dumps, which are a hole now
    return os.pread(memory, _MAX_BYTES, start).lstrip(b"\0").decode(errors="replace").strip()
