"""Describe what the processes of a stalled job do.

Environment and arguments of the processes are left out, since they may contain secrets.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

import psutil

from launcher.base.aio import Workers, wait_within
from launcher.base.host import host_port
from launcher.model import ProcessState
from launcher.processes import stacks
from launcher.processes.proc import process_tree, program
from launcher.processes.states import Tree, states

T = TypeVar("T")

_LINES = 50
_MAX_PROCESSES = 200
_MAX_CONNECTIONS = 40
_MAX_THREADS = 16  # threads that processes may block: other work needs threads, too
_FRAME = re.compile(r"^\[<.*>\] |\+0x.*$")
_SPARE = 1.0  # seconds after the deadline, to put the result together
_WORKERS = Workers("evidence", 0)  # processes that the kernel blocks must not take the threads of other work
_HEAD = re.compile(r"process \d+: (?P<program>.*)\n  (?P<state>.*), parent ")
_ENTRY = (
    "entry_SYSCALL",
    "do_syscall",
    "el0",
    "invoke_syscall",
)  # frames that all threads have: the entry into the kernel
_STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "is blocked in the kernel (D), for example by a stalled volume",
    "T": "is stopped by a signal (T)",
    "t": "is stopped by a debugger (t)",
    "Z": "has ended (Z)",
}


@dataclass(frozen=True)
class Subject:
    """A child to gather evidence about."""

    role: str
    log: str
    pid: int
    lines: Sequence[str]  # the last lines of its output
    quiet: float = 0.0  # seconds without output


@dataclass(frozen=True)
class Evidence:
    """The text, the number of processes that it describes, and the states of the most important ones."""

    text: str
    processes: int
    states: tuple[ProcessState, ...]


async def gather(subjects: Sequence[Subject], peers: Mapping[str, str], within: float) -> Evidence:
    """Describe the subjects and all their descendants, in at most `within` seconds.

    If a process does not answer in time, the text contains only its pid. `peers` maps addresses to names of members.
    """
    deadline = time.monotonic() + within
    below = await _trees(subjects, deadline)
    pids = [pid for pids in below for pid in pids]
    examined = pids[:_MAX_PROCESSES]
    own, every = dict[int, str](), dict[int, str]()  # the stacks of the main thread, and of all threads
    facts_deadline = time.monotonic() + within / 2
    threads = asyncio.Semaphore(_MAX_THREADS)

    async def facts_of(pid: int) -> str | None:
        async with threads:
            if time.monotonic() >= facts_deadline:
                return None  # each further try could block one more thread
            return await _answer(_WORKERS.run(_facts, pid, peers), facts_deadline)

    texts = await asyncio.gather(*map(facts_of, examined))
    facts = dict(zip(examined, texts, strict=True))
    # The dumps come last, since they interrupt system calls.
    await _answer(_WORKERS.run(_dump_all, _in_turn(below), own, every, deadline), deadline)
    parts = [
        "\n\n".join([_head(subject), *(_process(pid, facts[pid], every.get(pid)) for pid in tree if pid in facts)])
        for subject, tree in zip(subjects, below, strict=True)
    ]
    if len(pids) > _MAX_PROCESSES:
        parts.append(f"{len(pids) - _MAX_PROCESSES} more processes are not shown")
    found = await _states(subjects, below, own, lambda pid: _in_kernel_now(facts.get(pid)), deadline)
    return Evidence("\n\n\n".join(parts) or "no process of the job runs in this pod", len(pids), found)


async def look(subjects: Sequence[Subject], within: float) -> Evidence:
    """Find out only what the main threads do. The result has no text. Takes little more than `within` seconds."""
    deadline = time.monotonic() + within
    below = await _trees(subjects, deadline)
    dumps: dict[int, str] = {}
    await _answer(_WORKERS.run(_dump_all, _in_turn(below), dumps, None, deadline), deadline)
    found = await _states(subjects, below, dumps, lambda pid: _in_kernel_now(_facts(pid, None)), deadline)
    return Evidence("", sum(map(len, below)), found)


async def _trees(subjects: Sequence[Subject], deadline: float) -> list[list[int]]:
    """Return the pids of each subject and of all its descendants, in the order of their starts."""
    return [sorted(await _answer(_WORKERS.run(process_tree, each.pid), deadline) or {each.pid}) for each in subjects]


def _in_turn(trees: Sequence[Sequence[int]]) -> list[int]:
    """Return the first process of each tree, then the second one of each, and so on."""
    return [pid for level in zip_longest(*trees) for pid in level if pid is not None][:_MAX_PROCESSES]


async def _states(
    subjects: Sequence[Subject],
    below: Sequence[Sequence[int]],
    dumps: Mapping[int, str],
    in_kernel: Callable[[int], str],
    deadline: float,
) -> tuple[ProcessState, ...]:
    trees = [Tree(each.role, pids, each.quiet) for each, pids in zip(subjects, below, strict=True)]
    return await _answer(_WORKERS.run(states, trees, dict(dumps), in_kernel), deadline + _SPARE) or ()


async def _answer(future: asyncio.Future[T], deadline: float) -> T | None:
    """Return the result, or None if the process has ended or the kernel does not answer in time."""
    try:
        return await wait_within(future, max(deadline - time.monotonic(), 0))
    except Exception:  # an unexpected /proc of one process must not hide the evidence of all others
        return None


def _dump_all(pids: Sequence[int], own: dict[int, str], every: dict[int, str] | None, deadline: float) -> None:
    """Add the stacks of each process, one process after the other, until the deadline.

    own: gets the stacks of the main threads
    every: gets the stacks of all threads. Only for a stalled job: Python may crash if its threads run meanwhile.
    """
    for pid in pids:
        if time.monotonic() < deadline:
            own[pid] = stacks.dump(pid)
        if every is not None and time.monotonic() < deadline:
            every[pid] = stacks.dump(pid, all_threads=True)


def _head(subject: Subject) -> str:
    lines = subject.lines[-_LINES:]
    title = f"its last lines ({subject.log}):" if lines else f"no output so far ({subject.log})"
    return "\n".join([f"======== {subject.role}, process {subject.pid}", title, *(f"    {line}" for line in lines)])


def _process(pid: int, facts: str | None, dump: str | None) -> str:
    head, *known = (facts or f"process {pid}: has ended, or is blocked in the kernel").splitlines()
    stack = _indented(dump or "none: no time was left to get the stacks")
    return "\n".join([f"-------- {head}", f"  Python stacks:{stack}", *known])


def _indented(text: str) -> str:
    first, *rest = text.splitlines()
    return f" {first}" if not rest else "\n".join(["", *(f"    {line}" for line in (first, *rest))])


def _facts(pid: int, peers: Mapping[str, str] | None) -> str:
    """Describe one process. If `peers` is None, only in short. Blocks while the kernel blocks reads of /proc."""
    argv = [word.decode(errors="replace") for word in _read(pid, "cmdline").rstrip(b"\0").split(b"\0")]
    status = _status(pid)
    state = status.get("State", "?")[:1]
    lines = [
        f"process {pid}: {program(argv) or status.get('Name', '?')}",
        f"  {_STATES.get(state, state)}, parent {status.get('PPid', '?')}, memory {_memory(status)}, "
        f"threads: {status.get('Threads', '?')}",
    ]
    if peers is None:
        return "\n".join(lines)
    lines += _threads(pid)
    lines += _connections(pid, peers)
    return "\n".join(lines)


def _in_kernel_now(facts: str | None) -> str:
    """Return program and state from the facts of a process, or ""."""
    match = _HEAD.match(facts or "")
    return f"{os.path.basename(match['program'])}, which {match['state']}" if match else ""


def _status(pid: int) -> dict[str, str]:
    pairs = (line.partition(":") for line in _read(pid, "status").decode(errors="replace").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _memory(status: Mapping[str, str]) -> str:
    resident = status.get("VmRSS", "").removesuffix(" kB")
    return f"{int(resident) >> 10} MiB" if resident.isdigit() else "unknown"


def _threads(pid: int) -> list[str]:
    """Describe the threads, with one line per state, since dozens of Paddle's threads wait for work."""
    counts: Counter[str] = Counter()
    for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        try:
            counts[_thread(pid, thread)] += 1
        except OSError:
            continue  # the thread has ended
    return [f"  {f'{count} threads' if count > 1 else 'thread'} {text}" for text, count in counts.items()]


def _thread(pid: int, thread: int) -> str:
    folder = f"task/{thread}"
    name, _, rest = _read(pid, f"{folder}/stat").decode(errors="replace").partition("(")[2].rpartition(")")
    state = rest.split()[0]
    call, *_ = _optional(pid, f"{folder}/syscall").split() or [""]
    number = f", system call {call}" if call.isdigit() else ""
    return f"{name}: {_STATES.get(state, state)}{_in_kernel(pid, folder)}{number}"


def _in_kernel(pid: int, folder: str) -> str:
    """Describe where a thread waits in the kernel.

    Root sees the whole kernel stack, other users see only its innermost function.
    """
    frames = [_FRAME.sub("", line) for line in _optional(pid, f"{folder}/stack").splitlines()]
    where = " < ".join(frame for frame in frames if not frame.startswith(_ENTRY)) or _optional(pid, f"{folder}/wchan")
    return f" in {where}" if where not in ("", "0") else ""


def _connections(pid: int, peers: Mapping[str, str]) -> list[str]:
    """Describe the connections to members of the gang."""
    try:
        connections = [each for each in psutil.Process(pid).net_connections("tcp") if each.raddr]
    except psutil.Error:
        return ["  connections: this user has no permission to see them"]
    shown = []
    for each in connections:
        if peer := peers.get(each.raddr.ip.removeprefix("::ffff:")):
            own, other = host_port(*each.laddr), host_port(*each.raddr)
            shown.append(f"  connection {own} to {other}, {peer}: {each.status}")
    more = len(shown) - _MAX_CONNECTIONS
    return shown[:_MAX_CONNECTIONS] + ([f"  and {more} more connections"] if more > 0 else [])


def _optional(pid: int, name: str) -> str:
    """Return the text of a file, or "" if this user may not read it."""
    try:
        return _read(pid, name).decode(errors="replace").strip()
    except OSError:
        return ""


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
