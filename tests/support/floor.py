"""Run a Python program with few resources: `python floor.py LIMIT... -- ARGUMENT...` becomes `python ARGUMENT...`.

The limits:

    pids=40                   processes and threads of the program and all its children: a control group of their own
    memory=64                 MiB, in the same way
    container=64              the same, and the program sees its group where a container sees its own. Needs root
    nofile=64                 file descriptors of each process
    deny=pidfd_open,eventfd2  these system calls fail with ENOSYS, as in a sandbox

Without control groups (`supports` tells), only the other limits can be used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from pathlib import Path

LIMITS = ("pids=40", "memory=64", "nofile=64", "deny=pidfd_open,eventfd2")

_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY = ("memory.max", "memory.limit_in_bytes")  # version 2, version 1
_FILES = {"pids": ("pids.max", "pids.max"), "memory": _MEMORY, "container": _MEMORY}
_CALLS = {
    "x86_64": (0xC000003E, {"eventfd2": 290, "pidfd_open": 434}),
    "aarch64": (0xC00000B7, {"eventfd2": 19, "pidfd_open": 434}),
}
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def command(*limits: str) -> tuple[str, ...]:
    """Return what to put between `python` and its arguments."""
    return (__file__, *limits, "--")


def from_environment() -> tuple[str, ...]:
    """Return `command` for the limits in the variable FLOOR, which are separated by spaces, or () without limits."""
    limits = os.environ.get("FLOOR", "").split()
    remove_groups()
    return command(*limits) if limits else ()


def supports(limit: str) -> bool:
    """Return whether this limit can be set here."""
    name = limit.partition("=")[0]
    if name == "deny":
        return platform.machine() in _CALLS
    return name not in _FILES or _parent(name) is not None


def group(name: str, pid: int) -> Path:
    """Return the folder of the control group that `pids`, `memory` or `container` made for this process."""
    parent = _parent(name)
    assert parent is not None
    return parent / f"floor-{pid}"


def remove_groups() -> None:
    """Remove all control groups that have no process any more. Keep those of programs that are just starting."""
    for name in _FILES:
        for folder in parent.glob("floor-*") if (parent := _parent(name)) else ():
            if Path("/proc", folder.name.partition("-")[2]).exists():
                continue  # another worker has made it, and its program may not be in it yet
            try:
                folder.rmdir()
            except OSError:
                continue  # it has processes


def _parent(name: str) -> Path | None:
    """Return the folder in which a group with this controller can be made, or None."""
    name = "memory" if name == "container" else name
    old, new = _CGROUPS / name, _CGROUPS
    if (old / "cgroup.procs").exists():
        return old if os.access(old, os.W_OK) else None
    try:
        controllers = (new / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    return new if name in controllers and os.access(new, os.W_OK) else None


def _limit_group(name: str, value: int) -> None:
    folder = group(name, os.getpid())
    folder.mkdir(exist_ok=True)  # an earlier process may have had the same pid
    _, old = _FILES[name]
    new, _ = _FILES[name]
    (folder / (old if (folder / old).exists() else new)).write_text(str(value))
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    if name == "container":
        _show_as_own(folder)


def _show_as_own(folder: Path) -> None:
    """Show this group in place of the group of the machine, as the runtime of a container does."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = libc.unshare(_CLONE_NEWNS) or libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    if private or libc.mount(bytes(folder), bytes(folder.parent), None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), "the control group was not mounted")


def _deny(names: list[str]) -> None:
    """Install a filter that lets these system calls fail. All children inherit it."""
    architecture, numbers = _CALLS[platform.machine()]
    code = [(_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for name in names:
        code += [(_JUMP_IF_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    code.append((_RETURN, 0, 0, _ALLOW))
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of system calls was not installed")


def main() -> None:
    words = sys.argv[1:]
    end = words.index("--")
    for limit in words[:end]:
        name, _, value = limit.partition("=")
        if name in _FILES:
            _limit_group(name, int(value) if name == "pids" else int(value) << 20)
        elif name == "nofile":
            resource.setrlimit(resource.RLIMIT_NOFILE, (int(value), int(value)))
        elif name == "deny":
            _deny(value.split(","))
        else:
            sys.exit(f"unknown limit: {limit}")
    os.execv(sys.executable, [sys.executable, *words[end + 1 :]])


if __name__ == "__main__":
    main()
