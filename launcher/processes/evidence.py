"""Describe what the processes of a stalled job do.

Environment and arguments of the processes are left out, since they may contain secrets.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil

from launcher.base.aio import run_in_thread, wait_within
from launcher.base.host import host_port
from launcher.processes import stacks
from launcher.processes.proc import process_tree, program

T = TypeVar("T")

_LINES = 50
_MAX_PROCESSES = 200
_MAX_CONNECTIONS = 40
_MAX_THREADS = 16  # threads that processes may block: other work needs threads, too
_FRAME = re.compile(r"^\[<.*>\] |\+0x.*$")
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


@dataclass(frozen=True)
class Evidence:
    """The text, and the number of processes that it describes."""

    text: str
    processes: int


async def gather(subjects: Sequence[Subject], peers: Mapping[str, str], within: float) -> Evidence:
    """Describe the subjects and all their descendants, in at most `within` seconds.

    If a process does not answer in time, the text contains only its pid. `peers` maps addresses to names of members.
    """
    deadline = time.monotonic() + within
    below = [
        sorted(await _answer(run_in_thread(process_tree, subject.pid), deadline) or {subject.pid})
        for subject in subjects
    ]
    pids = [pid for pids in below for pid in pids]
    examined = pids[:_MAX_PROCESSES]
    dumps: dict[int, str] = {}
    facts_deadline = time.monotonic() + within / 2
    threads = asyncio.Semaphore(_MAX_THREADS)

    async def facts_of(pid: int) -> str | None:
        async with threads:
            return await _answer(run_in_thread(_facts, pid, peers), facts_deadline)

    texts = await asyncio.gather(*map(facts_of, examined))
    facts = dict(zip(examined, texts, strict=True))
    await _answer(
        run_in_thread(_dump_all, examined, dumps, deadline), deadline
    )  # last, since it interrupts system calls
    parts = [
        "\n\n".join([_head(subject), *(_process(pid, facts[pid], dumps.get(pid)) for pid in own if pid in facts)])
        for subject, own in zip(subjects, below, strict=True)
    ]
    if len(pids) > _MAX_PROCESSES:
        parts.append(f"{len(pids) - _MAX_PROCESSES} more processes are not shown")
    return Evidence("\n\n\n".join(parts) or "no process of the job runs in this pod", len(pids))


async def _answer(future: asyncio.Future[T], deadline: float) -> T | None:
    """Return the result, or None if the process has ended or the kernel does not answer in time."""
    try:
        return await wait_within(future, max(deadline - time.monotonic(), 0))
    except Exception:  # an unexpected /proc of one process must not hide the evidence of all others
        return None


def _dump_all(pids: Sequence[int], dumps: dict[int, str], deadline: float) -> None:
    """Add the stacks of each process to `dumps`, one process after the other, until the deadline."""
    for pid in pids:
        if time.monotonic() < deadline:
            dumps[pid] = stacks.dump(pid)


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


def _facts(pid: int, peers: Mapping[str, str]) -> str:
    """Describe one process. Blocks while the kernel blocks reads of /proc."""
    argv = [word.decode(errors="replace") for word in _read(pid, "cmdline").rstrip(b"\0").split(b"\0")]
    status = _status(pid)
    state = status.get("State", "?")[:1]
    lines = [
        f"process {pid}: {program(argv) or status.get('Name', '?')}",
        f"  {_STATES.get(state, state)}, parent {status.get('PPid', '?')}, memory {_memory(status)}, "
        f"threads: {status.get('Threads', '?')}",
    ]
    lines += _threads(pid)
    lines += _connections(pid, peers)
    return "\n".join(lines)


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
