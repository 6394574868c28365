"""What the processes below a child are doing, in words: for somebody who asks why nothing happens any more.

What a process was told is left out, environment and arguments, since it may hold secrets.
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

from launcher.base.aio import bounded, off_loop
from launcher.base.host import host_port
from launcher.processes import stacks
from launcher.processes.proc import program, tree

T = TypeVar("T")

_LINES = 50
_MOST = 200  # processes: more would tell nothing new
_MOST_CONNECTIONS = 40
_FRAME = re.compile(r"^\[<.*>\] |\+0x.*$")
_ENTRY = ("entry_SYSCALL", "do_syscall", "el0", "invoke_syscall")  # into the kernel, the same for all
_STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "is held by the kernel (D), as by a stalled volume",
    "T": "is stopped by a signal (T)",
    "t": "is stopped by a debugger (t)",
    "Z": "has ended (Z)",
}


@dataclass(frozen=True)
class Subject:
    """A child, as its supervisor knows it."""

    role: str
    log: str
    pid: int
    lines: Sequence[str]  # the last ones that it has printed


@dataclass(frozen=True)
class Evidence:
    """The text, and how many processes it is about."""

    text: str
    processes: int


async def gather(subjects: Sequence[Subject], peers: Mapping[str, str], within: float) -> Evidence:
    """Of all these and everything below them. What does not answer within the bound is named.

    `peers` are the names of members by address.
    """
    deadline = time.monotonic() + within
    below = [sorted(await _answer(off_loop(tree, subject.pid), deadline) or {subject.pid}) for subject in subjects]
    pids = [pid for pids in below for pid in pids]
    looked_at = pids[:_MOST]
    dumps: dict[int, str] = {}
    looking = time.monotonic() + within / 2
    texts = await asyncio.gather(*(_answer(off_loop(_facts, pid, peers), looking) for pid in looked_at))
    facts = dict(zip(looked_at, texts, strict=True))
    await _answer(off_loop(_ask_all, looked_at, dumps, deadline), deadline)  # later, since it disturbs what waits
    parts = [
        "\n\n".join([_head(subject), *(_process(pid, facts[pid], dumps.get(pid)) for pid in own if pid in facts)])
        for subject, own in zip(subjects, below, strict=True)
    ]
    if len(pids) > _MOST:
        parts.append(f"{len(pids) - _MOST} more processes are not shown")
    return Evidence("\n\n\n".join(parts) or "no process of the job runs here", len(pids))


async def _answer(asked: asyncio.Future[T], deadline: float) -> T | None:
    """None where it has gone, or the kernel gave no answer in time."""
    try:
        return await bounded(asked, max(deadline - time.monotonic(), 0))
    except Exception:  # whatever one process or its /proc is like, the rest is still worth to know
        return None


def _ask_all(pids: Sequence[int], dumps: dict[int, str], deadline: float) -> None:
    """One after the other. What is known by the end is in `dumps`."""
    for pid in pids:
        if time.monotonic() < deadline:
            dumps[pid] = stacks.ask(pid)


def _head(subject: Subject) -> str:
    lines = subject.lines[-_LINES:]
    said = f"its last lines ({subject.log}):" if lines else f"it has printed nothing ({subject.log})"
    return "\n".join([f"======== {subject.role}, process {subject.pid}", said, *(f"    {line}" for line in lines)])


def _process(pid: int, facts: str | None, dump: str | None) -> str:
    head, *known = (facts or f"process {pid}: it has ended, or the kernel did not tell in time").splitlines()
    told = _indented(dump or "none: there was no time left to ask for them")
    return "\n".join([f"-------- {head}", f"  Python stacks:{told}", *known])


def _indented(text: str) -> str:
    first, *rest = text.splitlines()
    return f" {first}" if not rest else "\n".join(["", *(f"    {line}" for line in (first, *rest))])


def _facts(pid: int, peers: Mapping[str, str]) -> str:
    """Of one process. Blocks as long as the kernel does."""
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
    """Those that do the same together: a Paddle has dozens that wait for work."""
    alike: Counter[str] = Counter()
    for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        try:
            alike[_thread(pid, thread)] += 1
        except OSError:
            continue  # it has ended
    return [f"  {f'{count} threads' if count > 1 else 'thread'} {words}" for words, count in alike.items()]


def _thread(pid: int, thread: int) -> str:
    folder = f"task/{thread}"
    name, _, rest = _read(pid, f"{folder}/stat").decode(errors="replace").partition("(")[2].rpartition(")")
    state = rest.split()[0]
    call, *_ = _optional(pid, f"{folder}/syscall").split() or [""]
    number = f", system call {call}" if call.isdigit() else ""
    return f"{name}: {_STATES.get(state, state)}{_in_kernel(pid, folder)}{number}"


def _in_kernel(pid: int, folder: str) -> str:
    """Where it waits: the way there for root, else the place, where that may be seen."""
    frames = [_FRAME.sub("", line) for line in _optional(pid, f"{folder}/stack").splitlines()]
    way = " < ".join(frame for frame in frames if not frame.startswith(_ENTRY)) or _optional(pid, f"{folder}/wchan")
    return f" in {way}" if way not in ("", "0") else ""


def _connections(pid: int, peers: Mapping[str, str]) -> list[str]:
    """To members of the gang. Others are nobody's business here."""
    try:
        found = [each for each in psutil.Process(pid).net_connections("tcp") if each.raddr]
    except psutil.Error:
        return ["  connections: not to be seen by this user"]
    shown = []
    for each in found:
        if peer := peers.get(each.raddr.ip.removeprefix("::ffff:")):
            own, other = host_port(*each.laddr), host_port(*each.raddr)
            shown.append(f"  connection {own} to {other}, {peer}: {each.status}")
    more = len(shown) - _MOST_CONNECTIONS
    return shown[:_MOST_CONNECTIONS] + ([f"  and {more} more connections"] if more > 0 else [])


def _optional(pid: int, name: str) -> str:
    """What not everybody may read."""
    try:
        return _read(pid, name).decode(errors="replace").strip()
    except OSError:
        return ""


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
