"""Watch the processes of pods whose nodes are on this machine: start, command line, end."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.jobs import now, started

_ROUND = 0.02  # seconds between two reads of /proc
_SETTLED = 1.0  # seconds after which a process of a pod runs its final program
_OTHER = 5.0  # seconds after which a process without POD_NAME belongs to no pod
_LISTEN = "0A"


@dataclass
class Process:
    """One process. `ran` is when it was first seen with POD_NAME, no longer as a process of the container runtime."""

    pid: int
    born: float
    pod: str = ""
    words: list[str] = field(default_factory=list)
    ran: float | None = None
    ended: float | None = None

    def runs(self, *parts: str) -> bool:
        """Return whether each of these parts occurs in one of the first four words of the command line."""
        return all(any(part in word for word in self.words[:4]) for part in parts)


class Watch:
    """A context manager whose thread finds new processes in /proc, and the pod of each process (POD_NAME)."""

    def __init__(self, also: Callable[[list[Process]], None]) -> None:
        self._also = also
        self._seen: dict[int, Process] = {}
        self._over: list[Process] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._old = {name for name in os.listdir("/proc") if name.isdigit()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def of(self, pods: Iterable[str]) -> list[Process]:
        """Return all processes of these pods until now, the oldest first."""
        wanted = set(pods)
        return sorted((one for one in self._all() if one.pod in wanted), key=lambda one: one.born)

    def _all(self) -> list[Process]:
        return [*self._over, *list(self._seen.values())]

    def _look(self) -> None:
        while not self._stop.wait(_ROUND):
            names = {name for name in os.listdir("/proc") if name.isdigit()}
            self._old &= names
            for pid in map(int, names - self._old):
                self._take(pid)
            at = now()
            for pid in [pid for pid in self._seen if str(pid) not in names]:
                self._seen[pid].ended = at
                self._over.append(self._seen.pop(pid))
            self._also([one for one in self._seen.values() if one.pod])

    def _take(self, pid: int) -> None:
        known, at = self._seen.get(pid), now()
        if known and at - known.born > (_SETTLED if known.pod else _OTHER):
            return
        try:
            born = started(pid)
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            return  # the process has ended, or has not begun
        one = self._seen.setdefault(pid, Process(pid, born))
        one.words = words
        pod_name = next((entry for entry in variables if entry.startswith(b"POD_NAME=")), b"=")
        one.pod = pod_name.partition(b"=")[2].decode()
        if one.ran is None and one.pod:
            one.ran = at


def listening(pid: int) -> set[int]:
    """Return the ports on which a process listens in the network namespace of this process."""
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            found.add(int(fields[1].rpartition(":")[2], 16))
    return found


class Ends:
    """Measure when each of these processes ends, with a precision of milliseconds."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._by_fd: dict[int, int] = {}
        self._poller = select.poll()
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue  # the process has already ended
            self._by_fd[fd] = pid
            self._poller.register(fd, select.POLLIN)

    def wait(self, within: float = 90) -> dict[int, float]:
        """Wait until all processes have ended. Return the time of each end, by pid."""
        found: dict[int, float] = {}
        deadline = time.monotonic() + within
        while self._by_fd:
            ready = self._poller.poll(max(0, deadline - time.monotonic()) * 1000)
            if not ready:
                raise SystemExit(f"processes {sorted(self._by_fd.values())} have not ended within {within:g} s")
            for fd, _ in ready:
                found[self._by_fd.pop(fd)] = now()
                self._poller.unregister(fd)
                os.close(fd)
        return found
