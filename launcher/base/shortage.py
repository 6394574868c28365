"""Name the limit of this pod that is used up: processes and threads, file descriptors, or memory.

Reads of /proc/self and of a control group's files never block, so they are allowed on the event loop.
"""

from __future__ import annotations

import errno
import os
import resource

from launcher.errors import Exit, Failure

_CGROUPS = "/sys/fs/cgroup"
NO_THREAD = "can't start new thread"  # Python's message; it does not keep the error of the system call
_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def no_thread() -> Failure:
    """Return the failure of work for which no thread could be started."""
    return Failure(Exit.IO_FAILED, f"no thread can be started: {of_processes()}")


def explain(error: BaseException, *, starting: bool = False) -> str:
    """Return which limit caused this error, or "" if none did.

    starting: the error was raised by the start of a process. Then EAGAIN means that the pid limit is used up.
    """
    number = error.errno if isinstance(error, OSError) else None
    if (starting and number == errno.EAGAIN) or (isinstance(error, RuntimeError) and str(error) == NO_THREAD):
        return of_processes()
    if number in _DESCRIPTORS:
        return of_descriptors()
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return "the memory of this pod or of its node is used up: raise the pod's memory limit"
    return ""


def is_of_descriptors(error: OSError) -> bool:
    """Return whether a file could not be opened only because no file descriptor is left."""
    return error.errno in _DESCRIPTORS


def of_processes(cgroups: str = _CGROUPS, own_groups: str = "/proc/self/cgroup") -> str:
    """Return why no process and no thread can be started. The kernel has one limit for both."""
    limit, used = _pids(cgroups, own_groups)
    ours, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    advice = "raise the limit, or start fewer processes and threads"
    if limit is not None and used is not None and used >= limit:
        return f"the pid limit of this pod is used up (pids.max = {limit}): {advice}"
    limits = f"pids.max = {_shown(limit)}, RLIMIT_NPROC = {_shown(None if ours == resource.RLIM_INFINITY else ours)}"
    memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    if memory != resource.RLIM_INFINITY:  # the stack of a thread needs memory, too
        limits += f", RLIMIT_AS = {memory}"
    return f"a limit of this pod, its user or its node is used up ({limits}): {advice}"


def of_descriptors() -> str:
    """Return why no file, pipe or socket can be opened."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"no file descriptor is left (RLIMIT_NOFILE = {limit}): raise the limit of open files"


def _shown(limit: int | None) -> str:
    return "none" if limit is None else str(limit)


def _pids(cgroups: str, own_groups: str) -> tuple[int | None, int | None]:
    """Return the lowest limit of the process's control group and of all groups above it, and how much of it is used."""
    found: list[tuple[int, int | None]] = []
    for folder in _folders(cgroups, own_groups):
        if (limit := _number(os.path.join(folder, "pids.max"))) is not None:
            found.append((limit, _number(os.path.join(folder, "pids.current"))))
    return min(found, key=lambda each: each[0], default=(None, None))


def _folders(cgroups: str, own_groups: str) -> list[str]:
    """Return the folders that may have the files of the pids controller, of cgroup version 2 and 1."""
    path = "/"
    for line in _text(own_groups).splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "pids" or (not controllers and path == "/"):
            path = group
    parts = [part for part in path.split("/") if part and part != ".."]
    below = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    return [os.path.join(cgroups, hierarchy, folder) for hierarchy in ("", "pids") for folder in below]


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
